"""Promises of docs/architecture.md about the local cluster, set-up, jobs and clouds."""

from __future__ import annotations

ROWS = {
    "docs/architecture.md": (
        (
            "The first design put network namespaces with mounts and interfaces on the host. This one creates nothing "
            "on the host, so a crash can leave nothing there",
            "tests/local/test_cluster.py::test_cluster_start_keeps_network_and_mounts_of_host",
            "tests/local/test_cluster.py::test_cluster_killed_restarts_with_its_data",
        ),
        (
            "`stop` kills the processes, then removes the cgroups and one folder.",
            "tests/local/test_cluster.py::test_cluster_stop_leaves_nothing",
        ),
        (
            "The cluster recovers from `kill -9` of the API server, etcd, a kubelet or containerd, and containers keep "
            "running.",
            "tests/local/test_cluster.py::test_cluster_killed_program_restarts_and_pods_keep_running",
        ),
        (
            "If process 1 itself is killed, the next `pulumi up` treats the dead cluster as a change and starts it "
            "again with its data.",
            "tests/local/test_cluster.py::test_cluster_killed_restarts_with_its_data",
        ),
        (
            "If a node still does not answer, `repair.py` ends it and takes it out of service",
            "tests/local/test_cluster.py::test_cluster_unresponsive_node_is_repaired",
            "tests/local/test_node_recovery.py::test_repair_step_for_node_state",
        ),
        (
            "These two determine its folder, lock, cgroup and the mark of its processes, so `make down` finds it "
            "without state, settings or the folder.",
            "tests/unit/test_local_clusters.py::test_stop_without_folder_ends_processes",
            "tests/end_to_end/test_stacks.py::test_damaged_stack_recovers_and_others_are_unaffected",
        ),
        (
            "Name, nodes and port can change; the data stays.",
            "tests/unit/test_local_clusters.py::test_stack_cluster_with_changed_settings_keeps_its_folder",
            "tests/local/test_cluster.py::test_cluster_with_fewer_nodes_keeps_data_and_removes_nodes",
        ),
        (
            "**One entry point**, a port on 127.0.0.1 (`api_proxy.py`): the one in the settings, or a free one that "
            "the cluster keeps unless another program uses it.",
            "tests/unit/test_local_clusters.py::test_start_without_port_keeps_last_port_unless_in_use",
        ),
        (
            "Its listening socket is opened on the host first, so a port in use is an error at once.",
            "tests/unit/test_local_clusters.py::test_port_of_another_cluster_is_rejected_with_stack_and_checkout",
            "tests/unit/test_local_clusters.py::test_port_of_another_program_is_rejected_with_command_to_find_it",
        ),
        (
            "anonymous callers reach only the health checks; the kubeconfig has mode 0600",
            "tests/local/test_cluster.py::test_cluster_keys_are_private_and_anonymous_calls_rejected",
        ),
        (
            "The cluster's network namespace has no interface to the machine's network, so no packet to a pod or "
            "service address can leave it.",
            "tests/local/test_cluster.py::test_cluster_network_has_no_way_out",
        ),
        (
            "A node's folder is a copy made of hard links, so two nodes use no more disk than one",
            "tests/local/test_images.py::test_clone_store_links_layers_and_copies_databases",
        ),
        (
            "With buildah only the layers that nodes lack are written and transferred: an edit of the trainer writes "
            "its small layer, not the five gigabytes of libraries below it.",
            "tests/setup/test_images.py::test_archive_omits_layers_that_nodes_have",
            "tests/local/test_images.py::test_import_without_forgotten_layer_uses_unpacked_copy",
        ),
        (
            "Every node offers an equal share of the machine's CPUs and memory",
            "tests/local/test_cluster.py::test_cluster_two_nodes_share_cpus_equally",
        ),
        (
            "If the data is deleted, `make up` destroys the stack's resources in the state and starts a new cluster",
            "tests/end_to_end/test_stacks.py::test_damaged_stack_recovers_and_others_are_unaffected",
        ),
        (
            "The engine cannot replace the cluster ([pulumi#14650](https://github.com/pulumi/pulumi/issues/14650)), "
            "so `pulumi up` stops and refers to `make up`.",
            "tests/unit/test_local_clusters.py::test_provider_lost_data_or_moved_checkout_names_remedy",
        ),
        (
            "A deleted kubeconfig is rebuilt from its keys while the cluster runs.",
            "tests/unit/test_local_clusters.py::test_kubeconfig_deleted_is_rebuilt_from_keys",
            "tests/local/test_cluster.py::test_cluster_deleted_kubeconfig_is_rebuilt_while_running",
        ),
        (
            "A deleted key causes new keys and a restart with the same data.",
            "tests/unit/test_local_clusters.py::test_key_deleted_is_recreated_and_data_kept",
            "tests/local/test_cluster.py::test_cluster_deleted_key_restarts_with_its_data",
        ),
        (
            "Before a start launches a process, it checks that its `pulumi` is alive.",
            "tests/unit/test_local_clusters.py::test_start_without_engine_launches_nothing",
            "tests/unit/test_local_clusters.py::test_engine_check_without_pulumi_raises",
        ),
        (
            "`setup/steps.py` is a list of steps. Each has a quick check and an action that can be repeated after any "
            "interruption.",
            "tests/setup/test_progress.py::test_run_steps_skips_finished_steps",
            "tests/setup/test_progress.py::test_run_steps_continues_after_a_failure",
        ),
        (
            "If one step fails, a concurrent step runs to its end.",
            "tests/setup/test_progress.py::test_failed_step_lets_the_concurrent_one_finish_and_starts_no_other",
        ),
        (
            "Set-up downloads Kubernetes, etcd, CoreDNS, containerd and runc from their projects' releases, and "
            "builds them only if a host does not answer",
            "tests/setup/test_steps.py::test_unreleased_programs_are_built_and_reported_once",
            "tests/setup/test_releases.py::test_install_replaces_builds_with_released_programs",
        ),
        (
            "All unanswered requests of a set-up together wait five seconds.",
            "tests/setup/test_downloads.py::test_silent_servers_share_one_timeout",
        ),
        (
            "Each archive must have the checksum that its project publishes",
            "tests/setup/test_releases.py::test_install_with_a_wrong_checksum_installs_nothing",
            "tests/setup/test_downloads.py::test_failed_fetch_names_the_reason_and_leaves_no_file",
        ),
        (
            "Programs on PATH or installed by Pulumi take precedence.",
            "tests/setup/test_pulumi_cli.py::test_cli_on_path_takes_precedence_over_installed_ones",
            "tests/setup/test_pulumi_cli.py::test_host_on_path_takes_precedence",
            "tests/setup/test_kubernetes_plugin.py::test_plugin_of_the_user_takes_precedence",
        ),
        (
            "If it answers, set-up downloads the official release by its checksum",
            "tests/setup/test_pulumi_cli.py::test_release_with_another_digest_is_rejected",
        ),
        (
            "`tests/setup/test_kubernetes_plugin.py` checks that the three are equal.",
            "tests/setup/test_kubernetes_plugin.py::test_plugin_version_equals_the_python_package",
            "tests/setup/test_kubernetes_plugin.py::test_go_module_is_the_commit_of_the_plugin_version",
        ),
        (
            "The built plugin is therefore in a Pulumi home of the checkout, `.trainyard/pulumi-home`, with links to "
            "the user's other plugins.",
            "tests/setup/test_kubernetes_plugin.py::test_home_of_the_checkout_has_other_plugins_of_the_user",
        ),
        (
            "Trainyard does not write to the user's own `~/.pulumi`.",
            "tests/setup/test_kubernetes_plugin.py::test_built_plugin_is_in_the_home_of_the_checkout_only",
        ),
        (
            "Trainyard rejects a spec that its kind cannot express when it reads the settings.",
            "tests/unit/test_job_rules.py::test_job_conflict_has_code_and_path",
        ),
        (
            "A test sends every golden manifest to a real API server with the operators' CRDs, which accepts each "
            "without a warning.",
            "tests/local/test_admission.py::test_api_server_accepts_golden_manifests",
        ),
        (
            "A change of what an operator's job runs replaces the job; a change of only its suspension or run policy "
            "updates it in place.",
            "tests/components/test_training_job.py::test_operator_job_is_replaced_on_change",
        ),
        (
            "A TrainJob has its own TrainingRuntime, which gets a new name at each change",
            "tests/components/test_training_job.py::test_train_job_runtime_is_replaced_before_deletion",
        ),
        (
            "Trainyard sends the value as a Kubernetes Secret; no settings class contains it.",
            "tests/components/test_program.py::test_program_secret_is_only_in_secret_of_job",
            "tests/components/test_training_job.py::test_job_secrets_are_only_in_its_secret",
            "tests/rehearsal/test_canary.py::test_state_has_no_secret",
        ),
        (
            "An `up` does not wait for training, but the replacement of a job waits for the end of the old one.",
            "tests/components/test_training_job.py::test_job_update_does_not_wait_for_completion",
            "tests/plugins/test_lifecycle.py::test_job_that_is_ready_when_created_is_deleted_before_its_replacement_is_created",
        ),
        (
            "An edit changes the pod template and so replaces the job",
            "tests/components/test_training_job.py::test_user_script_change_renames_its_config_map",
            "tests/end_to_end/test_examples.py::test_user_script_runs_and_reruns_after_edit",
        ),
        (
            "Every cloud returns the same `Platform`",
            "tests/components/test_platforms.py::test_program_has_same_outputs_on_every_platform",
        ),
        (
            "Only the providers are Trainyard's, first on PATH for that run. They check inputs against tables of "
            "facts from the providers' source",
            "tests/rehearsal/test_facts.py::test_check_rejects_what_the_real_provider_rejects",
        ),
        (
            "`make verify-empty` identifies the stack's resources by this label, then by their network, then by the "
            "names that the program gives for the settings (`commands/cloud_inventory.py`). This also excludes a "
            "stack whose name has the same beginning.",
            "tests/commands/test_verify_empty.py"
            "::test_verify_reports_each_leak_but_no_resource_of_a_stack_with_longer_name",
        ),
        (
            "AWS alone knows the ids of resources from a dead update. `commands/cloud_inventory.py` finds them by the "
            "same label and their `Name`. It finds resources without tags by the resources that they connect.",
            "tests/rehearsal/test_recovery.py::test_find_in_cloud_finds_a_resource_by_its_tags",
            "tests/rehearsal/test_recovery.py::test_find_in_cloud_finds_a_resource_without_tags_by_its_parts",
        ),
    ),
}
"""Document -> rows of a quotation and the node ids of its tests."""
