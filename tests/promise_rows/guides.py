"""Promises of the pages for first steps, scripts, settings, additions and updates."""

from __future__ import annotations

ROWS = {
    "docs/bring-your-own-script.md": (
        (
            "Any Python file that trains with `torch.distributed` under torchrun runs unchanged.",
            "tests/end_to_end/test_examples.py::test_user_script_runs_and_reruns_after_edit",
        ),
        (
            "Trainyard copies the file into pods of the trainer's image",
            "tests/components/test_training_job.py::test_user_script_is_mounted_in_every_pod",
        ),
        (
            "torchtitan selects CUDA where it finds no accelerator, so it cannot train on CPUs.",
            "tests/trainer/test_frameworks.py::test_torchtitan_reads_its_configuration_and_requires_a_gpu",
        ),
        (
            "After an edit, the next `make up` runs the job again.",
            "tests/end_to_end/test_examples.py::test_user_script_runs_and_reruns_after_edit",
        ),
        (
            "The name must end in .py and contain only letters, digits, `.`, `_` and `-`.",
            "tests/unit/test_image_rules.py::test_script_not_runnable_in_pods_has_code_and_path",
        ),
        (
            "An edit of the file builds another image and runs the job again.",
            "tests/end_to_end/test_own_project.py::test_job_of_a_project_gets_its_packages_and_data_on_each_host",
            "tests/unit/test_requirements_and_data.py::test_tag_of_an_image_with_packages_has_the_digest_of_the_file",
        ),
        (
            "Up to 900 kB are sent without an image build. More, up to 50 MB, become a layer of the job's image",
            "tests/end_to_end/test_own_project.py::test_job_of_a_project_gets_its_packages_and_data_on_each_host",
            "tests/unit/test_requirements_and_data.py::test_script_too_large_for_a_config_map_is_in_the_image",
        ),
        (
            "If the file needs another version, `up` stops and reports the package with both versions",
            "tests/end_to_end/test_own_project.py::test_job_of_a_project_gets_its_packages_and_data_on_each_host",
            "tests/unit/test_requirements_and_data.py::test_conflict_with_the_image_names_package_and_both_versions",
        ),
        (
            "On GKE and EKS, it builds the image with buildx and pushes it, as it does with the trainer's image.",
            "tests/components/test_gke.py::test_gke_job_with_requirements_runs_image_over_trainer_image",
            "tests/rehearsal/test_varied_stacks.py::test_stack_is_accepted_and_its_pods_fit_nodes[packages and data]",
        ),
        (
            "It cannot refer to other files (`-r`, `-c`, `-e`, paths), which are not in the build.",
            "tests/unit/test_requirements_and_data.py::test_requirements_file_that_cannot_be_installed_has_code",
        ),
        (
            "An existing cluster (`kubeconfig`) and a stack with `image.prebuilt` build no image.",
            "tests/unit/test_requirements_and_data.py::test_requirements_with_an_image_that_cannot_get_packages_have_code",
        ),
        (
            "`trainyard init` adds `requirements: requirements.txt` if the folder has that file.",
            "tests/commands/test_project.py::test_init_adds_the_requirements_file_of_a_script",
        ),
        (
            "A `script` that does not begin with `./` or `../` is a path in the job's image",
            "tests/unit/test_image_rules.py::test_script_of_image_is_accepted",
            "tests/unit/test_command.py::test_host_command_script_runs_under_launcher_of_its_image",
        ),
        (
            "This needs an existing cluster or a cloud, because nodes of platform `local` cannot pull from a registry.",
            "tests/local/test_cluster.py::test_cluster_image_pull_from_registry_fails_fast",
        ),
        (
            "A cloud's bucket deletes them after `checkpoint_days` and `profile_days`.",
            "tests/unit/test_bucket_layout.py::test_bucket_lifecycle_prefixes_match_trainer_folders",
            "tests/components/test_gke.py::test_gke_bucket_deletes_checkpoints_only_with_checkpoint_days",
        ),
        (
            "The root file system is read-only.",
            "tests/golden/test_golden.py::test_golden_manifests_are_current",
        ),
        (
            "`$HOME` (`/tmp`) and `/dev/shm` are writable, separately on each host.",
            "tests/unit/test_image_rules.py::test_folder_writable_in_pods_is_accepted",
            "tests/unit/test_image_rules.py::test_folder_not_writable_in_pods_has_code_and_path",
        ),
        (
            "They get another `MASTER_PORT`, and the number of restarts in `TORCHELASTIC_RESTART_COUNT`",
            "tests/trainer/test_script_restarts.py::test_killed_ranks_of_a_script_restart_on_all_hosts",
        ),
        (
            "Pulumi asks for the value and stores it encrypted in the stack's file. The job contains only its name.",
            "tests/rehearsal/test_canary.py::test_settings_and_preview_have_no_secret",
            "tests/rehearsal/test_canary.py::test_pod_refers_to_the_secret",
        ),
    ),
    "docs/config.md": (
        (
            "`python -m stack.config Pulumi.<stack>.yaml` checks a file; `make up` and `pulumi up` check it first.",
            "tests/unit/test_stack_config.py::test_stack_config_command_reports_problems",
            "tests/end_to_end/test_local_stack.py::test_up_with_invalid_setting_changes_nothing",
            "tests/components/test_program.py::test_program_invalid_settings_are_rejected_together",
        ),
        (
            "An unknown key is an error. A key without a default is required.",
            "tests/unit/test_setting_rules.py::test_invalid_setting_has_code_and_path",
            "tests/unit/test_setting_rules.py::test_unknown_key_suggests_intended_key",
        ),
        (
            "An entry of `trainyard:jobs` is a job, or the name of one of the [examples](recipes/README.md).",
            "tests/unit/test_stack_config.py::test_jobs_may_be_names_of_examples",
        ),
        (
            "Maximum cost in US dollars an hour; `make preview` fails if the cost is higher or an item has no price.",
            "tests/commands/test_report.py::test_report_cost_above_budget_fails",
            "tests/unit/test_cost.py::test_over_budget_rejects_higher_and_unknown_prices",
        ),
        (
            "Hours after the first `make up` until the scheduled workflow `destroy` destroys the stack; by default "
            "never.",
            "tests/commands/test_ttl.py::test_is_expired_only_after_ttl_and_never_without_one",
        ),
        (
            "Number of nodes; each has an equal share of this machine's CPUs and memory.",
            "tests/local/test_cluster.py::test_cluster_two_nodes_share_cpus_equally",
        ),
        (
            "Port of the API server on 127.0.0.1; by default a free port, which the cluster keeps.",
            "tests/unit/test_local_clusters.py::test_start_without_port_keeps_last_port_unless_in_use",
        ),
        (
            "Create the namespace, and delete it with all its objects when the stack is destroyed; `false` uses an "
            "existing namespace and keeps its labels and other objects.",
            "tests/components/test_program.py::test_program_existing_namespace_is_not_created",
        ),
        (
            "`install` installs the operators that the jobs need, at Trainyard's versions (docs/operators.md). "
            "`present` uses the operators of the cluster.",
            "tests/components/test_program.py::test_program_present_operators_are_not_installed",
        ),
        (
            "Bucket of an object store, which the trainer image opens by its URL.",
            "tests/components/test_program.py::test_program_existing_cluster_with_object_store_has_no_claim",
            "tests/trainer/test_stores.py::test_run_in_a_bucket_saves_resumes_and_cleans_up",
        ),
        (
            "Reject versions, regions and zones that are not in Trainyard's tables of 2026-11.",
            "tests/unit/test_gke_rules.py::test_gke_invalid_setting_has_code_and_path",
            "tests/unit/test_gke_rules.py::test_gke_valid_settings_are_accepted",
        ),
        (
            "`secrets_key` | string | none | Cloud KMS key that additionally encrypts Kubernetes Secrets",
            "tests/components/test_gke.py::test_gke_secrets_are_encrypted_with_given_key",
        ),
        (
            "Address ranges with access to the API server's public address; by default the API server has no public "
            "address, and clients use its DNS name with IAM.",
            "tests/components/test_gke.py::test_gke_api_server_is_limited_to_dns_endpoint_or_authorized_networks",
        ),
        (
            "Id of the only AWS account that the stack may change; by default the account of the credentials.",
            "tests/components/test_eks.py::test_eks_account_limits_provider",
        ),
        (
            "Minor version of Kubernetes of the control plane and all nodes; an existing cluster upgrades one minor "
            "version at a time.",
            "tests/unit/test_eks_rules.py::test_update_problems_of_unsupported_change_have_code_and_path",
            "tests/unit/test_eks_rules.py::test_update_problems_of_supported_change_are_empty",
        ),
        (
            "Address ranges with access to the API server from outside the VPC; by default there is no public endpoint",
            "tests/components/test_eks.py::test_eks_control_plane_is_private_encrypted_and_logged",
            "tests/components/test_eks.py::test_eks_public_endpoint_is_limited_to_authorized_networks",
        ),
        (
            "Prefix of the jobs' objects; jobs can access only objects with this prefix.",
            "tests/components/test_eks.py::test_eks_job_role_is_limited_to_bucket_prefix",
        ),
        (
            "Number of times that the whole job may restart from its last checkpoint after a failure.",
            "tests/trainer/test_restarts.py::test_rank_killed_beyond_restarts_ends_job",
            "tests/components/test_training_job.py::test_job_backoff_limit_is_restarts_times_hosts",
        ),
        (
            "Flags of the trainer: `batch_size: 64` becomes `--batch-size=64`, `amp: true` becomes `--amp`",
            "tests/unit/test_command.py::test_host_command_flags_become_arguments",
        ),
        (
            "Environment variables with secret values: `WANDB_API_KEY: wandb` reads the secret that `pulumi config "
            "set --secret secrets:wandb` stored.",
            "tests/unit/test_stack_config.py::test_load_file_secret_must_be_encrypted",
            "tests/components/test_training_job.py::test_job_secrets_are_only_in_its_secret",
        ),
        (
            "The job measures it before training; a slower link fails the job at once.",
            "tests/trainer/test_network_check.py::test_slow_link_ends_job_before_training",
            "tests/trainer/test_network_check.py::test_good_links_are_printed_and_training_runs",
        ),
        (
            "`suspend` | boolean | `false` | Creates the job without starting it, or stops its hosts",
            "tests/components/test_training_job.py::test_job_queue_deadline_and_suspension_apply_to_every_kind",
        ),
        (
            "`interactive` | boolean | `false` | Starts the hosts idle, for training by hand.",
            "tests/unit/test_command.py::test_idle_command_waits_until_sigterm",
            "tests/components/test_training_job.py::test_interactive_job_differs_in_arguments_only",
        ),
        (
            "The flags of each recipe.",
            "tests/unit/test_trainer_flags.py::test_stack_and_trainer_accept_the_same_flag_texts",
            "tests/trainer/test_config.py::test_flags_equal_the_recorded_table",
        ),
    ),
    "docs/extending.md": (
        (
            "Facts have no defaults, so mypy and the import of the module fail if one is missing.",
            "tests/unit/test_hardware_tables.py::test_hardware_table_row_has_no_defaults",
        ),
        (
            "Add the class's instance to `KINDS` (`workloads/kinds/__init__.py`) and its name to `JobKind` "
            "(`workloads/spec.py`), both at the same position; `tests/unit/test_source_conventions.py` compares the "
            "two.",
            "tests/unit/test_source_conventions.py::test_kind_registry_has_every_job_kind",
        ),
        (
            "Add rules for its types to `policy/catalogue.py`, each with a fixture that satisfies it and one that "
            "breaks it.",
            "tests/policy/test_rules.py::test_policy_rules_all_have_fixtures",
        ),
    ),
    "docs/tour.md": (
        (
            "**`make up STACK=mine`** checks credentials, budget and quota, shows what it creates and what that costs "
            "an hour, a day and a month, and asks.",
            "tests/commands/test_price_question.py::test_ask_shows_plan_price_and_quota_before_the_question",
            "tests/commands/test_price_question.py::test_check_account_of_an_unusable_account_is_an_error",
        ),
        (
            "A script in one file needs no image: `script: ./train.py` is a file next to `Pulumi.mine.yaml`.",
            "tests/unit/test_image_rules.py::test_script_of_checkout_is_accepted",
            "tests/components/test_training_job.py::test_user_script_is_mounted_in_every_pod",
        ),
        (
            "`make preview STACK=mine` first reports the problems of the settings, each with the allowed values and "
            "the remedy.",
            "tests/commands/test_pull_requests.py::test_preview_invalid_topology_is_rejected_with_path",
            "tests/unit/test_setting_rules.py::test_invalid_setting_has_message",
        ),
        (
            "`make preview STACK=mine` shows the resources, the price per hour, the quota to request, the broken "
            "policy rules and your job's command.",
            "tests/commands/test_pull_requests.py::test_report_grown_pool_shows_update_quota_and_cost",
            "tests/commands/test_pull_requests.py::test_report_added_job_shows_command_of_only_that_job",
        ),
        (
            "It lists items without a known price and never omits them.",
            "tests/commands/test_report.py::test_report_item_without_price_is_listed_and_fails_budget",
            "tests/unit/test_cost.py::test_cost_estimate_names_unpriced_machines",
        ),
        (
            "`trainyard:budget: 20` fails the preview of a stack that costs more than 20 $ an hour.",
            "tests/commands/test_report.py::test_report_cost_above_budget_fails",
        ),
        (
            "`make rehearse STACK=mine` creates, runs and destroys the stack in a simulated cloud: every pod must "
            "find a node, and `destroy` must leave nothing.",
            "tests/rehearsal/test_rehearsal.py::test_pod_that_no_node_fits_fails_the_rehearsal",
            "tests/rehearsal/test_report.py::test_report_with_leftovers_does_not_pass",
        ),
        (
            "**`make down STACK=mine`** ends the jobs, destroys the other resources and prints the bucket that is kept",
            "tests/commands/test_down.py::test_down_ends_jobs_first_and_prints_kept_bucket",
        ),
        (
            "`make verify-empty STACK=mine` lists leftovers through the cloud's own API, writes a receipt to "
            "`.trainyard/receipts/`, and fails if there are any.",
            "tests/commands/test_verify_empty.py::test_verify_empty_writes_receipt_below_state_folder",
            "tests/commands/test_verify_empty.py::test_verify_empty_leaked_router_fails",
        ),
        (
            "With `trainyard:ttl_hours: 8` the scheduled workflow destroys a forgotten stack.",
            "tests/commands/test_ttl.py::test_is_expired_only_after_ttl_and_never_without_one",
            "tests/commands/test_ttl.py::test_first_up_is_the_first_success_after_the_last_destroy",
        ),
        (
            "Its settings have the kubeconfig, the context and the image that `pulumi stack output` prints",
            "tests/unit/test_docs.py::test_tour_stacks_are_valid",
        ),
    ),
    "docs/upgrading.md": (
        (
            "Some settings have new names. `make preview` and `make up` reject the old ones.",
            "tests/unit/test_docs.py::test_upgrading_page_old_settings_are_rejected",
        ),
        (
            "The flag `--least-gigabits` of `python -m network_check` is now `--min-bandwidth-gbps`.",
            "tests/trainer/test_network_check.py::test_arguments_after_two_dashes_are_the_program",
        ),
        (
            "Checkpoints are now in `checkpoints/JOB/` of the bucket, and profiles in `profiles/JOB/`.",
            "tests/unit/test_bucket_layout.py::test_shared_folders_are_parents_of_job_folders",
            "tests/trainer/test_stores.py::test_run_in_a_bucket_saves_resumes_and_cleans_up",
        ),
        (
            "network check | `/opt/trainyard/trainer/links.py`, `/opt/trainyard/trainer/network_check.py` | "
            "`/opt/trainyard/network_check.py`",
            "tests/unit/test_image_rules.py::test_python_files_and_data_folders_of_images",
        ),
        (
            "Trainyard rejects the old paths in `script`.",
            "tests/unit/test_docs.py::test_upgrading_page_old_scripts_are_rejected",
        ),
        (
            "Without a terminal they end with exit status 3 and change nothing.",
            "tests/commands/test_price_question.py::test_ask_without_a_yes_stops_before_the_update",
        ),
        (
            "Commands that your scripts and workflows may call have new names",
            "tests/unit/test_docs.py::test_upgrading_page_new_commands_exist",
        ),
        (
            "`platform.project` of kind `gke` is required.",
            "tests/unit/test_gke_rules.py::test_gke_invalid_setting_has_code_and_path",
        ),
    ),
    "docs/versions.md": (
        (
            "Each part that Trainyard pins, generated from the pins by `python -m docs.references`.",
            "tests/unit/test_docs.py::test_generated_page_is_current[versions.md]",
            "tests/unit/test_docs.py::test_versions_page_lists_python_packages",
            "tests/unit/test_docs.py::test_versions_page_lists_go_programs",
        ),
        (
            "A test fails 30 days before such a date.",
            "tests/unit/test_docs.py::test_versions_page_part_has_month_of_support",
        ),
    ),
}
"""Document -> rows of a quotation and the node ids of its tests."""
