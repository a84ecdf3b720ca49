"""Promises of README.md and the Makefile. The tests of README.md are the core of `make test`."""

from __future__ import annotations

ROWS = {
    "README.md": (
        (
            "`make down` removes everything and proves it.",
            "tests/end_to_end/test_local_stack.py::test_down_leaves_nothing_and_can_be_repeated",
        ),
        (
            "The same job specification runs on all of them.",
            "tests/components/test_platforms.py::test_job_has_same_pod_on_every_platform",
            "tests/components/test_training_job.py::test_job_worker_is_equal_in_every_kind",
        ),
        (
            "On a Linux machine with two cores, 8 GiB of memory, 40 GB of free disk space for the set-up, root "
            "permissions",
            "tests/local/test_incapable_machine.py::test_command_on_incapable_machine_is_rejected_with_remedy",
            "tests/setup/test_disk.py::test_empty_home_needs_the_sum_of_all_folders",
            "tests/unit/test_readme.py::test_default_stack_is_valid_on_smallest_machine",
        ),
        (
            "make up # set up this machine, create the cluster, run the job, and follow it",
            "tests/end_to_end/test_local_stack.py::test_up_trains_digits_to_97_percent",
            "tests/end_to_end/test_local_stack.py::test_up_runs_each_rank_on_its_own_node",
        ),
        (
            "`make up` ends with the accuracy on digits that the network has not seen, and the next commands",
            "tests/end_to_end/test_local_stack.py::test_up_trains_digits_to_97_percent",
            "tests/commands/test_result_box.py::test_box_without_a_terminal_has_plain_rows",
            "tests/commands/test_result_box.py::test_next_commands_are_three_that_the_command_line_accepts",
        ),
        (
            "`make up JOB=pytorch-gloo` runs an example of [docs/recipes](docs/recipes/README.md) instead of the "
            "stack's own job.",
            "tests/unit/test_stack_config.py::test_jobs_may_be_names_of_examples",
            "tests/end_to_end/test_examples.py::test_example_every_rank_trains_to_completion[pytorch-gloo]",
        ),
        (
            "`make down` removes the cluster, the job and its checkpoints.",
            "tests/end_to_end/test_local_stack.py::test_up_writes_metrics_and_checkpoints_to_bucket",
            "tests/end_to_end/test_local_stack.py::test_down_leaves_nothing_and_can_be_repeated",
        ),
        (
            "`make help` lists the other commands.",
            "tests/unit/test_makefile.py::test_help_lists_every_target",
        ),
        (
            "Built tools and images stay in `$XDG_CACHE_HOME/trainyard` (`~/.cache/trainyard`)",
            "tests/unit/test_readme.py::test_cache_folder_is_below_xdg_cache_home",
        ),
        (
            "`Pulumi.local.yaml` | this machine, two nodes | a convolutional network on 10,000 real handwritten "
            "digits, two hosts, DDP over gloo",
            "tests/unit/test_readme.py::test_stack_file_has_the_jobs_of_readme[local]",
            "tests/end_to_end/test_local_stack.py::test_up_trains_digits_to_97_percent",
        ),
        (
            "`Pulumi.dev.yaml` | GKE | two hosts with two T4 each",
            "tests/unit/test_readme.py::test_stack_file_has_the_jobs_of_readme[dev]",
            "tests/rehearsal/test_rehearsal.py::test_dev_stack_has_two_hosts_with_two_gpus_each",
        ),
        (
            "`Pulumi.gke-v100.yaml` | GKE | two hosts with two V100 each",
            "tests/unit/test_readme.py::test_stack_file_has_the_jobs_of_readme[gke-v100]",
        ),
        (
            "`Pulumi.gke-h200.yaml` | GKE | a language model of 7 billion weights on two hosts with eight H200 each, "
            "spot",
            "tests/unit/test_readme.py::test_stack_file_has_the_jobs_of_readme[gke-h200]",
            "tests/rehearsal/test_rehearsal.py::test_h200_stack_trains_on_eight_gpus_of_each_host",
        ),
        (
            "`Pulumi.eks-p5.yaml` | EKS | a language model of 7 billion weights on two hosts with eight H100 each",
            "tests/unit/test_readme.py::test_stack_file_has_the_jobs_of_readme[eks-p5]",
        ),
        (
            "`Pulumi.gke-tpu.yaml` | GKE | a TPU v4 slice of 2x2x4 chips, spot",
            "tests/unit/test_readme.py::test_stack_file_has_the_jobs_of_readme[gke-tpu]",
            "tests/components/test_gke_pools.py::test_gke_pool_of_multi_host_slice_has_topology_and_hosts",
        ),
        (
            "`Pulumi.eks.yaml` | EKS | a PyTorchJob, an MPIJob and an MXJob under the Kubeflow operators",
            "tests/unit/test_readme.py::test_stack_file_has_the_jobs_of_readme[eks]",
        ),
        (
            "`make rehearse STACK=dev` creates, runs and destroys a cloud stack in a simulated cloud, without an "
            "account",
            "tests/rehearsal/test_rehearsal.py::test_dev_stack_has_two_hosts_with_two_gpus_each",
        ),
        (
            "`make preview STACK=dev` shows the changes of a stack with their cost, the required quota and the broken "
            "policy rules.",
            "tests/commands/test_pull_requests.py::test_report_grown_pool_shows_update_quota_and_cost",
            "tests/commands/test_pull_requests.py::test_report_publicly_accessible_bucket_fails_policy",
        ),
        (
            "[docs/stacks](docs/stacks) has a page for each stack.",
            "tests/unit/test_docs.py::test_stack_pages_are_those_of_existing_stacks",
        ),
        (
            "[docs/config.md](docs/config.md) lists all keys.",
            "tests/unit/test_docs.py::test_generated_page_is_current[config.md]",
        ),
        (
            "A minimal job has a name and a recipe or a script.",
            "tests/unit/test_readme.py::test_job_with_name_and_program_is_valid",
            "tests/unit/test_setting_rules.py::test_invalid_setting_has_code_and_path[job.recipe.missing]",
        ),
        (
            "Several jobs can share the machine if their `resources` set the requests of each host",
            "tests/unit/test_docs.py::test_page_stacks_are_valid_on_smallest_machine[README.md]",
            "tests/unit/test_local_capacity.py::test_local_capacity_second_job_beyond_capacity_is_rejected",
        ),
        (
            "`platform: {kind: kubeconfig, context: kind-kind, image: ...}` uses an existing cluster instead.",
            "tests/components/test_program.py::test_program_existing_cluster_has_provider_and_outputs",
        ),
        (
            "With `create_namespace: false`, access to one of its namespaces is enough.",
            "tests/components/test_program.py::test_program_existing_namespace_is_not_created",
            "tests/commands/test_one_namespace.py::test_follow_and_status_without_node_permissions_show_the_job",
        ),
        (
            "Each stack of kind `local` has its own cluster, which `make down` removes together with its checkpoints.",
            "tests/unit/test_local_clusters.py::test_stack_cluster_equal_names_have_separate_folders",
            "tests/unit/test_local_clusters.py::test_stop_removes_folder_and_lock_of_its_stack_only",
            "tests/end_to_end/test_local_stack.py::test_down_leaves_nothing_and_can_be_repeated",
        ),
        (
            "Several can run at the same time, from one checkout or several.",
            "tests/local/test_cluster.py::test_cluster_equal_names_run_and_stop_separately",
        ),
        (
            "`kubeconfig` | string, secret | kubeconfig as text; empty for an existing cluster",
            "tests/components/test_platforms.py::test_readme_lists_outputs_of_program",
            "tests/components/test_platforms.py::test_kubeconfig_output_is_secret",
            "tests/components/test_program.py::test_program_existing_cluster_has_provider_and_outputs",
        ),
        (
            "`get_kubeconfig` | string | command that connects kubectl to the cluster",
            "tests/components/test_gke.py::test_gke_job_requests_gpus_of_its_nodes",
            "tests/components/test_eks.py::test_eks_job_requests_gpus_and_adapters",
        ),
        (
            "`console` | map of strings | pages of the cloud's console; empty on other platforms",
            "tests/components/test_platforms.py::test_console_output_is_empty_without_cloud",
        ),
        (
            "`bucket_url` | string | bucket with metrics and TensorBoard events in `JOB/`, and checkpoints in "
            "`checkpoints/JOB/`",
            "tests/components/test_program.py::test_program_local_stack_has_expected_resources",
            "tests/end_to_end/test_local_stack.py::test_up_writes_metrics_and_checkpoints_to_bucket",
        ),
        (
            "`image` | string | trainer image; empty on a cloud where every job sets its own image",
            "tests/components/test_gke.py::test_gke_job_with_own_image_builds_none",
        ),
        (
            "`logs` | map of strings | command that follows a job's logs",
            "tests/components/test_program.py::test_program_local_stack_has_expected_resources",
        ),
        (
            "`status` | string | command that shows jobs and pods",
            "tests/components/test_platforms.py::test_status_output_shows_jobs_and_pods",
        ),
        (
            "`run_records` | mapping | sources of each job: commit, uncommitted changes (`dirty`, with a digest), "
            "plan digest, image, pools, chips, price.",
            "tests/commands/test_job_results.py::test_run_record_holds_source_state_pools_chips_and_price",
            "tests/commands/test_job_results.py::test_source_state_of_changed_files_is_dirty_with_a_digest",
        ),
        (
            "When the job is over, `make up` writes them with its chip-hours to `JOB/run-record.json` in the bucket",
            "tests/commands/test_job_results.py::test_write_record_of_a_finished_run_stores_chip_hours_and_price",
            "tests/commands/test_job_results.py::test_write_records_writes_only_to_a_bucket_on_this_machine",
        ),
        (
            "look up a setting, a kind of job, an example | [docs/config.md](docs/config.md), [kinds](docs/kinds.md), "
            "[examples](docs/recipes/README.md)",
            "tests/unit/test_docs.py::test_page_links_lead_to_existing_places",
        ),
        (
            "On a machine that cannot download Pulumi, set-up builds the CLI and the Kubernetes provider from their Go "
            "modules.",
            "tests/setup/test_pulumi_cli.py::test_get_pulumi_without_downloads_builds_after_one_message",
        ),
        (
            "The Python language host and the launcher of dynamic resources are not Go modules; "
            "[stand-ins](setup/stand_ins/README.md) replace them.",
            "tests/setup/test_pulumi_cli.py::test_hosts_on_a_bare_machine_are_stand_ins",
            "tests/setup/test_pulumi_cli.py::test_built_cli_has_the_hosts_of_a_release_next_to_it",
        ),
    ),
    "Makefile": (
        (
            "setup: ## set up this machine for the stack (also part of make up)",
            "tests/end_to_end/test_local_stack.py::test_up_trains_digits_to_97_percent",
            "tests/local/test_incapable_machine.py::test_make_without_root_is_rejected_and_creates_nothing",
        ),
        (
            "rehearse: ## create, run and destroy a cloud stack in a simulated cloud: STACK=dev, "
            "FAULT=stockout:nodepool:gpus, NAME= for a concurrent one",
            "tests/rehearsal/test_rehearsal.py::test_dev_stack_has_two_hosts_with_two_gpus_each",
            "tests/rehearsal/test_rehearsal.py::test_after_a_fault_a_second_up_converges[crash:nodepool]",
            "tests/rehearsal/test_folder.py::test_rehearsal_lock_rejects_a_name_in_use",
            "tests/rehearsal/test_folder.py::test_reserve_port_differs_by_process_and_name",
        ),
        (
            "logs: ## follow the logs of all ranks (JOB=NAME for one job)",
            "tests/commands/test_follow.py::test_follow_prints_every_line_of_both_ranks_and_the_summary",
            "tests/commands/test_quiet_hosts.py::test_logs_of_an_unknown_job_name_it_as_typed",
        ),
        (
            "status: ## show jobs, hosts and ranks: state, step, loss, rate, problems",
            "tests/commands/test_screen.py::test_job_rows_running_job_has_step_rate_loss_and_accuracy",
            "tests/commands/test_follow.py::test_status_of_three_jobs_shows_nodes_and_every_job",
        ),
        (
            "exec: ## open a shell in the pod of RANK=0 (JOB=NAME if the stack has several jobs)",
            "tests/commands/test_exec.py::test_pod_of_a_running_rank_returns_its_pod",
            "tests/commands/test_exec.py::test_job_named_without_a_name_requires_a_single_job",
            "tests/commands/test_exec.py::test_kubectl_command_selects_context_namespace_and_pod",
        ),
        (
            "tensorboard: ## show curves and profiles from the bucket at http://localhost:6006",
            "tests/commands/test_tensorboard.py::test_server_serves_scalars_and_profile_plugin",
            "tests/commands/test_tensorboard.py::test_log_folder_local_bucket_is_a_path_and_remote_is_a_url",
        ),
        (
            "down: ## destroy the stack and verify that nothing is left",
            "tests/end_to_end/test_local_stack.py::test_down_leaves_nothing_and_can_be_repeated",
        ),
        (
            "verify-empty: ## list leftovers of a destroyed stack by the cloud's API, with a JSON receipt; exit "
            "status 1 if there are any",
            "tests/commands/test_verify_empty.py::test_verify_empty_leaked_router_fails",
            "tests/commands/test_verify_empty.py::test_verify_empty_kept_bucket_is_listed_and_passes",
        ),
        (
            "preview: ## show a change of a stack: resources, cost, quota, broken rules; no credentials needed",
            "tests/commands/test_preview.py::test_preview_with_empty_cache_builds_operator_objects_and_passes",
            "tests/commands/test_official.py::test_plugin_environment_has_no_credentials_and_a_closed_proxy",
        ),
        (
            "check: ## run ruff, mypy --strict, import contracts, shellcheck, actionlint, zizmor, hadolint, "
            "detect-secrets, pip-audit",
            "tests/commands/test_check.py::test_check_runs_the_tools_that_make_help_lists",
        ),
        (
            "bench: ## measure all speed claims, as ratios within one run",
            "tests/bench/test_measure.py::test_alternate_times_sides_in_turn_without_first_pair",
            "tests/bench/test_measure.py::test_measure_on_temporarily_slow_machine_keeps_ratio",
        ),
        (
            "shell: ## open a shell with the stack's pulumi, kubectl and python",
            "tests/commands/test_shell.py::test_shell_pulumi_selects_the_stack",
            "tests/commands/test_shell.py::test_shell_start_files_do_not_override_path_and_kubeconfig",
        ),
        (
            "clean: ## remove this checkout's environments and check caches; keep built tools and images",
            "tests/unit/test_makefile.py::test_clean_removes_environments_and_keeps_other_files",
        ),
    ),
}
"""Document -> rows of a quotation and the node ids of its tests."""
