"""Promises about kinds of job and operators."""

from __future__ import annotations

ROWS = {
    "docs/kinds.md": (
        (
            "The workers' containers are the same in all kinds",
            "tests/components/test_training_job.py::test_job_worker_is_equal_in_every_kind",
        ),
        (
            "In `make test-all`, a test runs each case on a real cluster with the operators' own controllers.",
            "tests/local/test_faults.py::test_fault_has_documented_effect",
            "tests/local/test_faults.py::test_fault_reason_is_in_status",
        ),
        (
            "fails at once: nothing restarts. Exit codes 65 (diverged), 66 (data), 69 (slow link) and 78 "
            "(configuration) do this in every kind but `mpi-job` and `ray-job`.",
            "tests/components/test_training_job.py::test_job_failure_policy_ends_job_on_launcher_exit",
            "tests/unit/test_command.py::test_final_exit_codes_equal_those_of_trainer",
            "tests/golden/test_golden.py::test_golden_manifests_are_current",
        ),
        (
            "waits: nothing fails, and the job starts when the image or the capacity is available. `make status` says "
            "what it waits for.",
            "tests/commands/test_follow.py::test_follow_of_an_unschedulable_job_says_why_and_stops_when_it_is_deleted",
            "tests/commands/test_pod_state.py::test_pod_state_missing_image_is_a_stuck_reason_with_image_name",
        ),
        (
            "The training-operator retries exit codes of 128 and above and ends the job on others, so the trainer's "
            "launcher adds 128 to its retryable codes (70, 74, 75).",
            "tests/trainer/test_launch.py::test_launcher_exits_with_the_code_of_the_first_failed_rank",
        ),
        (
            "A job has no `ttlSecondsAfterFinished`.",
            "tests/golden/test_golden.py::test_golden_manifests_are_current",
        ),
        (
            "host deleted | recreated. Ray Train starts all ranks again from the last checkpoint",
            "tests/end_to_end/test_ray_job.py::test_digits_ray_with_a_lost_pod_trains_to_the_end",
        ),
        (
            "driver fails, with any exit code | fails after `restarts`. Each retry has a new Ray cluster",
            "tests/end_to_end/test_ray_job.py::test_driver_that_fails_runs_again_and_then_fails_the_job",
        ),
        (
            "`make status` shows which node does not answer, since when, the affected pods and what to do.",
            "tests/commands/test_node_state.py::test_node_that_does_not_answer_gives_time_and_advice",
            "tests/commands/test_node_state.py::test_lost_pods_on_silent_or_removed_nodes_excludes_ended_pods",
            "tests/local/test_lost_node.py::test_lost_node_status_names_pods_and_remedy",
        ),
        (
            "Platform `local` repairs its nodes as clouds do.",
            "tests/local/test_cluster.py::test_cluster_unresponsive_node_is_repaired",
            "tests/local/test_node_recovery.py::test_repair_step_for_node_state",
        ),
        (
            "The pods are recreated on the other node within seconds",
            "tests/local/test_dead_node.py::test_dead_node_pods_are_recreated",
        ),
        (
            "A node with a running kubelet gets the whole toleration plus one second.",
            "tests/local/test_node_recovery.py::test_repair_step_for_node_state",
            "tests/local/test_node_recovery.py::test_repair_of_silent_node_waits_longer_than_toleration",
        ),
        (
            "Pods of other nodes stay, and every job completes.",
            "tests/local/test_lost_node.py::test_lost_node_jobs_continue_on_other_node",
        ),
        (
            "`indexed-job`, recipe or script of this checkout | the ranks of all hosts, in place | nothing | the "
            "launchers, over the whole job",
            "tests/unit/test_command.py::test_restarts_in_place_is_true_for_trainyard_launcher_of_indexed_job",
            "tests/trainer/test_script_restarts.py::test_killed_ranks_of_a_script_restart_on_all_hosts",
        ),
        (
            "`make up` and `make status` show until when Kubernetes waits for a pod, or that no restart is left.",
            "tests/commands/test_pod_state.py::test_backoff_failed_indexed_pod_has_end_delay_and_failure_number",
            "tests/commands/test_pod_state.py::test_backoff_says_replaced_only_if_the_job_restarts",
            "tests/commands/test_screen.py::test_describe_backoff_is_shown_only_until_the_job_is_over",
        ),
        (
            "An `indexed-job` has a back-off per host",
            "tests/components/test_training_job.py::test_job_backoff_limit_is_restarts_times_hosts",
        ),
        (
            "If a launcher exits by itself with any code but 75, the Job fails at once",
            "tests/components/test_training_job.py::test_job_failure_policy_ends_job_on_launcher_exit",
            "tests/unit/test_command.py::test_lost_exit_codes_exclude_codes_of_failed_ranks",
        ),
        (
            "64 launchers agree on a restart",
            "tests/trainer/test_rounds.py::test_failure_on_one_host_restarts_all_hosts_and_counts_once[64]",
        ),
        (
            "With `queue`, Kueue admits all pods of a job or none",
            "tests/local/test_operators.py::test_queue_runs_one_of_two_jobs_at_a_time",
            "tests/local/test_operators.py::test_queue_runs_every_queueable_kind",
        ),
        (
            "Trainyard rejects an `mx-job` with a queue",
            "tests/unit/test_job_rules.py::test_job_conflict_has_code_and_path[job.queue.kind]",
        ),
        (
            "Pods of all kinds run without a service-account token, root, capabilities or a writable root file system.",
            "tests/components/test_training_job.py::test_job_pods_satisfy_restricted_standard",
            "tests/golden/test_golden.py::test_golden_manifests_are_current",
        ),
        (
            "A namespace that enforces `restricted` admits all of them.",
            "tests/local/test_admission.py::test_api_server_admits_pods_to_restricted_namespace",
        ),
        (
            "In an etcd that outlives the hosts, `trainer.launch` reopens it when Kubernetes restarts a host.",
            "tests/trainer/test_rendezvous.py::test_closed_rendezvous_is_reopened",
            "tests/end_to_end/test_elastic_examples.py::test_lightning_with_closed_rendezvous_reopens_it",
        ),
    ),
    "docs/operators.md": (
        (
            "A stack installs only the operators that its jobs need",
            "tests/components/test_training_job.py::test_operators_of_jobs_follow_from_kinds_and_queues",
            "tests/setup/test_operators.py::test_steps_are_only_those_that_a_stack_needs",
        ),
        (
            "They run in the namespace `trainyard-operators`, which enforces the `restricted` Pod Security Standard.",
            "tests/components/test_operators.py::test_operator_namespace_enforces_restricted_standard",
            "tests/components/test_operators.py::test_operator_pods_satisfy_restricted_standard",
        ),
        (
            "Set-up downloads these files from the module's archive at the Go module proxy (`$GOPROXY`), verifies the "
            "archive, and writes the objects to the cache",
            "tests/setup/test_go_modules.py::test_read_files_rejects_a_wrong_checksum",
            "tests/setup/test_operators.py::test_saved_objects_are_read_by_release",
        ),
        (
            "Set-up omits the schemas' descriptions",
            "tests/setup/test_operators.py::test_definitions_keep_only_the_stored_version_without_descriptions_and_conversion",
            "tests/setup/test_operators.py::test_rules_omit_resources_that_are_not_installed",
        ),
        (
            "**The program**, for the cluster on this machine: built from the module once, into an image `FROM "
            "scratch`.",
            "tests/setup/test_operators.py::test_program_image_has_only_the_program",
        ),
        (
            "An operator may change only the Secret of its certificate",
            "tests/components/test_operators.py::test_operator_role_is_limited_to_its_certificate",
            "tests/local/test_operators.py::test_operator_permissions_on_secrets_are_limited",
        ),
        (
            "With one certificate each, they overwrite each other about 20 times a second. They therefore share one "
            "Secret",
            "tests/components/test_operators.py::test_training_operators_share_one_certificate",
        ),
        (
            "The operator owns these fields in server-side apply, so a second `pulumi up` changes nothing.",
            "tests/local/test_operators.py::test_operator_second_update_and_refresh_change_nothing",
        ),
        (
            "An operator is ready when 1. its CRDs are `Established`, 2. its webhook configurations have the "
            "certificate's authority",
            "tests/components/test_operators.py::test_operator_webhooks_wait_for_certificate",
        ),
        (
            "the startup probe calls the webhook that the operator registers last",
            "tests/components/test_operators.py::test_operator_startup_probe_uses_last_webhook",
        ),
        (
            "and it has been ready for two seconds, so that API servers and proxies know its address. Jobs are "
            "created after that.",
            "tests/components/test_program.py::test_program_operator_job_depends_on_operator",
        ),
        (
            "`destroy` deletes the jobs first, then the controllers, then their CRDs.",
            "tests/components/test_operators.py::test_operator_controller_depends_on_its_objects",
            "tests/local/test_operators.py::test_operator_destroy_leaves_nothing",
        ),
        (
            "On an existing cluster, `make up` looks for each object before it creates any. If one exists and does "
            "not belong to the stack, it prints the object and stops.",
            "tests/plugins/test_existing_objects.py::test_up_names_the_objects_and_creates_nothing",
        ),
        (
            "Plain `pulumi up` does not check: the provider takes the object over, and `pulumi destroy` deletes it.",
            "tests/plugins/test_lifecycle.py::test_existing_object_is_taken_over_and_deleted_with_the_stack",
        ),
        (
            "With two or more nodes, each node offers capacity for all operators in addition to its share of the "
            "machine: two hosts of one CPU still fit on two nodes with one CPU each.",
            "tests/unit/test_operator_releases.py::test_left_for_jobs_on_two_nodes_is_whole_share",
        ),
        (
            "A single node has no more than the machine, so jobs there have the capacity that the operators leave",
            "tests/unit/test_operator_releases.py::test_left_for_jobs_on_one_node_excludes_operators",
        ),
        (
            "one ClusterQueue, `trainyard`, with each pool's capacity for jobs minus the requests of jobs without a "
            "queue",
            "tests/unit/test_capacity.py::test_queue_capacity_excludes_jobs_without_queue",
            "tests/components/test_queues.py::test_queue_quota_excludes_jobs_without_queue",
        ),
        (
            "A change of a job's queue replaces the job.",
            "tests/components/test_queues.py::test_queued_job_with_new_queue_is_replaced",
        ),
        (
            "Trainyard enables only the kinds that Kueue admits",
            "tests/unit/test_operator_releases.py::test_kueue_frameworks_equal_queueable_kinds",
        ),
        (
            "Kueue does not evict jobs whose hosts start slowly or are replaced.",
            "tests/unit/test_operator_releases.py::test_kueue_timeout_covers_longest_deadline",
        ),
        (
            "The launcher of a queued `mpi-job` therefore waits for the workers' sshd itself",
            "tests/components/test_training_job.py::test_mpi_launcher_of_queued_job_waits_for_workers",
        ),
        (
            "On GKE a pool with `capacity: queued` gets an AdmissionCheck and a ProvisioningRequestConfig of GKE's "
            "class.",
            "tests/components/test_queues.py::test_queue_admission_check_applies_to_nodes_on_request",
        ),
        (
            "On an existing cluster (`kubeconfig`) the stack only sets the label, also with `operators: install`",
            "tests/components/test_queues.py::test_queued_job_on_existing_cluster_has_label_only",
        ),
        (
            "PyTorchJob's workers get no init container.",
            "tests/components/test_operators.py::test_operator_files_are_mounted",
        ),
    ),
}
"""Document -> rows of a quotation and the node ids of its tests."""
