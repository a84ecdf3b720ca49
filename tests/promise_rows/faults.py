"""Promises of the troubleshooting page: messages, remedies, interrupted commands and locks."""

from __future__ import annotations

ROWS = {
    "docs/troubleshooting.md": (
        (
            "`make status` shows each job's hosts and their problems.",
            "tests/commands/test_follow.py::test_status_of_three_jobs_shows_nodes_and_every_job",
        ),
        (
            "`make shell` opens a shell with `kubectl` configured.",
            "tests/commands/test_shell.py::test_shell_kubeconfig_is_the_stacks",
            "tests/commands/test_shell.py::test_shell_start_files_do_not_override_path_and_kubeconfig",
        ),
        (
            "the settings are rejected | the line with the key, the value and what is allowed",
            "tests/unit/test_setting_rules.py::test_invalid_setting_has_message",
        ),
        (
            "preview: `has items without a price` | the list below the price table",
            "tests/commands/test_report.py::test_report_item_without_price_is_listed_and_fails_budget",
        ),
        (
            "preview: `would replace pool ... on which ... runs` | the keys below **REPLACE**",
            "tests/commands/test_plan.py::test_forbidden_pool_with_running_job_is_reported",
        ),
        (
            "a job is `queued`: `waits in queue ...` | the rest of that line in `make status`",
            "tests/commands/test_job_state.py::test_job_state_of_a_suspended_job_with_a_queue_is_queued",
            "tests/commands/test_job_state.py::test_why_queued_returns_the_message_of_quota_or_admission_check",
        ),
        (
            "a node `has not answered since` | `make status`: the node, its pods, what to do",
            "tests/commands/test_node_state.py::test_node_that_does_not_answer_gives_time_and_advice",
            "tests/commands/test_node_state.py::test_lost_pods_on_silent_or_removed_nodes_excludes_ended_pods",
        ),
        (
            "`ran out of memory`, exit code 78 or 1 | the error in each rank's log | raise the limit in that error: "
            "`resources.memory`, `shared_memory`",
            "tests/trainer/test_cpu.py::test_translate_errors_before_first_step_names_the_memory_limit",
        ),
        (
            "exit code 137, `OOMKilled` | `make status`: the limit that was reached",
            "tests/commands/test_pod_state.py::test_pod_state_oom_killed_names_limit_and_settings_key",
            "tests/commands/test_follow.py::test_follow_of_a_job_out_of_memory_reports_oomkilled",
        ),
        (
            "`make up` reports a job that `ended at ..., before this command` | the lines below it | its settings "
            "have not changed since; the lines say how to run it again or to train further",
            "tests/end_to_end/test_local_stack.py::test_up_of_finished_job_shows_result_without_log",
            "tests/commands/test_follow.py::test_report_finished_of_a_job_that_ended_before_up_prints_no_log",
        ),
        (
            "`no longer following: ...` | the rest of that line | another terminal deleted the cluster, its namespace "
            "or the job; the line has the command that recreates it",
            "tests/commands/test_removed_cluster.py::test_follow_removed_cluster_ends_with_advice_to_recreate_it",
            "tests/commands/test_follow.py::test_follow_of_a_deleted_namespace_stops_and_names_make_up",
        ),
        (
            "preview: `needs ... more of ..., of which ... are left` | the quota list",
            "tests/commands/test_pull_requests.py::test_report_count_beyond_quota_fails_with_missing_quota",
        ),
        (
            "`make up` says that a resource `may exist in the cloud without being in the state` | the cloud's "
            "console, for a resource of that name",
            "tests/rehearsal/test_recovery.py::test_adopt_pending_lists_resources_that_the_user_must_look_for",
        ),
        (
            "`make up` was interrupted or killed | the last line that it printed | `make up` or `make down`: each "
            "first cleans up after the dead run",
            "tests/end_to_end/test_interrupted.py::test_interrupted_command_leaves_nothing_and_can_be_repeated",
            "tests/commands/test_interrupted_pulumi.py::test_up_after_a_killed_engine_removes_its_lock",
        ),
        (
            "`has been working on it since` | the process in that line | another command of this checkout is changing "
            "the stack",
            "tests/commands/test_interrupted_pulumi.py::test_up_during_another_up_fails_and_names_its_pid",
        ),
        (
            "`not the passphrase of stack ...`, `.trainyard/passphrase: no such file` | the file or variable in that "
            "line",
            "tests/commands/test_broken_stack.py::"
            "test_down_with_edited_or_deleted_passphrase_names_the_file_and_keeps_it",
            "tests/commands/test_broken_stack.py::"
            "test_down_with_another_passphrase_names_the_variable_and_then_removes_the_stack",
        ),
        (
            "`its state ... is damaged and has no intact copy`, `its state ... cannot be read` | "
            "`.trainyard/pulumi/.pulumi/stacks/` | Pulumi no longer knows the stack's resources.",
            "tests/commands/test_broken_stack.py::test_commands_with_damaged_state_without_copy_name_the_file",
            "tests/commands/test_stack.py::test_recover_broken_state_without_copy_raises",
            "tests/commands/test_state_files.py::test_repair_broken_state_uses_backup",
        ),
        (
            "Local: `make down` removes the cluster and resets the state.",
            "tests/commands/test_down.py::test_down_with_broken_state_resets_it_on_this_machine",
        ),
        (
            "run the `make down ORPHAN=NAME` from that line; it deletes that cluster with its checkpoints. It rejects "
            "a cluster whose checkout exists",
            "tests/unit/test_local_clusters.py::test_down_orphan_ends_only_cluster_of_deleted_checkout",
            "tests/unit/test_local_clusters.py::test_down_orphan_of_existing_checkout_is_rejected",
        ),
        (
            "`make down` leaves something | the receipt of `make verify-empty` | run `make down` again, which "
            "continues where it stopped",
            "tests/rehearsal/test_faults.py::test_a_second_destroy_empties_the_clouds",
        ),
        (
            "a built-in kind does not have the field: Kubernetes drops it",
            "tests/plugins/test_errors.py::test_unknown_field_of_a_built_in_kind_is_dropped",
        ),
        (
            "`failed to create typed patch object (...): .spec.X: field not declared in schema` | a custom kind does "
            "not have the field",
            "tests/plugins/test_errors.py::test_unknown_field_of_a_custom_kind_is_rejected",
        ),
        (
            "`spec.X: Invalid value: ...: field is immutable` | the field cannot change, and the provider does not "
            "replace the object by itself",
            "tests/plugins/test_errors.py::test_change_of_an_immutable_field_is_rejected_until_the_object_is_deleted",
        ),
        (
            "`make up` itself takes over fields that `kubectl` has set; the local cluster's provider takes over all "
            "fields",
            "tests/plugins/test_lifecycle.py"
            "::test_drift_by_kubectl_is_a_conflict_in_the_preview_and_ends_with_the_update",
            "tests/plugins/test_lifecycle.py::test_provider_of_the_local_cluster_takes_fields_over",
            "tests/plugins/test_lifecycle.py::test_field_of_another_manager_is_a_conflict_until_it_is_taken_over",
        ),
        (
            "`... already exists in the cluster and does not belong to stack ...`, from `make up` on an existing "
            "cluster | an object of that name exists",
            "tests/plugins/test_existing_objects.py::test_up_names_the_objects_and_creates_nothing",
        ),
        (
            "`context = ...: the cluster's objects cannot be read: ...`, from `make up` on an existing cluster | the "
            "cluster does not answer, or rejects the credentials",
            "tests/plugins/test_existing_objects.py::test_cluster_without_an_answer_stops_the_command",
        ),
        (
            "`no matches for kind ...`, `Verify that any required CRDs have been created` | the cluster does not have "
            "that kind; the provider waits a minute for it",
            "tests/plugins/test_errors.py::test_unknown_kind_is_named_after_a_minute",
        ),
        (
            "`timed out waiting to be Ready` | the object exists but is not ready in time",
            "tests/plugins/test_lifecycle.py::test_job_beyond_its_timeout_fails_the_update",
        ),
        (
            "`finalizers might be preventing deletion (NAME)` | the controller that removes the finalizer is gone",
            "tests/plugins/test_lifecycle.py::test_deletion_waits_for_finalizers_and_names_them_at_its_timeout",
        ),
        (
            "`configured Kubernetes cluster is unreachable` | the kubeconfig or the network",
            "tests/plugins/test_errors.py::test_unreachable_cluster_is_previewed_and_rejected_by_up",
        ),
        (
            "The first Ctrl-C (or SIGTERM) makes Pulumi start no new operation and finish those in progress",
            "tests/commands/test_interrupted_pulumi.py::test_up_interrupted_once_finishes_the_current_creation",
            "tests/commands/test_interrupts.py::test_sigterm_and_sighup_interrupt_the_child",
        ),
        (
            "`make down` does the same while it removes a local cluster.",
            "tests/commands/test_interrupts.py"
            "::test_first_signal_during_down_reports_progress_and_finishes_the_removal",
        ),
        (
            "The second Ctrl-C abandons the operations, which stay in the state as pending.",
            "tests/commands/test_interrupted_pulumi.py::test_up_interrupted_twice_names_the_unfinished_operations",
        ),
        (
            "The third kills Pulumi, which then also leaves its lock.",
            "tests/commands/test_interrupted_pulumi.py"
            "::test_up_interrupted_three_times_leaves_a_lock_that_the_next_up_removes",
        ),
        (
            "The next `make up` or `make down` ends the processes of the dead run, removes its lock, searches for "
            "pending creations and continues.",
            "tests/commands/test_interrupted_pulumi.py::test_up_after_a_killed_engine_removes_its_lock",
            "tests/rehearsal/test_killed.py::test_up_and_destroy_after_a_kill_converge",
        ),
        (
            "dead, on this machine, backend in a folder | remove the lock and continue",
            "tests/commands/test_locks.py::test_free_locks_of_a_dead_owner_removes_the_lock",
        ),
        (
            "dead, on this machine, backend in a bucket | print the owner and stop",
            "tests/commands/test_shared_backend.py::test_up_locked_by_dead_process_fails_with_pid_and_cancel_command",
        ),
        (
            "alive, on this machine | print the owner and stop",
            "tests/commands/test_locks.py::test_free_locks_of_a_running_owner_raises_and_keeps_the_lock",
        ),
        (
            "on another machine | print the owner and stop | wait; `pulumi cancel` only if that process is certainly "
            "dead",
            "tests/commands/test_locks.py::test_free_locks_of_an_owner_on_another_machine_raises_and_keeps_the_lock",
            "tests/commands/test_shared_backend.py::test_up_locked_by_another_machine_fails_with_owner",
        ),
    ),
}
"""Document -> rows of a quotation and the node ids of its tests."""
