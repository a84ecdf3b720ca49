"""Promises of the table of faults in docs/trainer.md."""

from __future__ import annotations

FAULT_ROWS = (
    (
        "SIGKILL of a random rank, twice a run, each run with its own seed | both | 20 runs, 40 kills | final "
        "weights identical to the bit to those of an undisturbed run with the same seed",
        "tests/trainer/test_faults.py::test_randomly_killed_ranks_end_with_the_same_result",
    ),
    (
        "SIGKILL of a rank inside a save: before its first tensor, between two tensors, before and after the "
        "manifest | both | 4 kills in a run | each start resumes the newest complete checkpoint, and the weights "
        "at the end are those of an undisturbed run to the bit",
        "tests/trainer/test_faults.py::test_ranks_killed_inside_saves_end_with_the_same_result",
    ),
    (
        "SIGKILL of ranks on 2, 4 and 8 hosts (8: `digits` alone) | both | 6 restarts | all launchers stay, and "
        "no complete checkpoint is lost",
        "tests/trainer/test_restarts.py::test_killed_ranks_restart_while_all_launchers_stay",
    ),
    (
        "SIGKILL of the rank on each of two hosts, restarted in place | both | 2 | the run has the final weights "
        "of an undisturbed one",
        "tests/trainer/test_restarts.py::test_restarts_in_place_end_with_the_same_result",
    ),
    (
        "SIGKILL of a host with its launcher, of each of two | both | 2 | the other launcher waits for the new "
        "one, and the run ends with 0",
        "tests/trainer/test_restarts.py::test_launchers_wait_for_a_lost_host",
    ),
    (
        "SIGKILL of the launcher | both | 1 | the ranks save the step and exit with 75",
        "tests/trainer/test_launch.py::test_ranks_with_killed_launcher_save_and_stop",
    ),
    (
        "SIGTERM, alternately to the launcher and to one rank | both | 20 | 20 checkpoints of the last trained step",
        "tests/trainer/test_faults.py::test_preempted_run_saves_current_step",
    ),
    (
        "SIGTERM in the first step of a rank | both | 1 | a checkpoint of the last trained step",
        "tests/trainer/test_preemption.py::test_rank_preempted_in_its_first_step_saves",
    ),
    (
        "SIGTERM while the ranks read their data | both | 1 | exit code 75 before the first step",
        "tests/trainer/test_preemption.py::test_preempted_rank_that_reads_its_data_stops_at_once",
    ),
    (
        "SIGTERM during an evaluation | both | 1 | the next start repeats the evaluation",
        "tests/trainer/test_preemption.py::test_preempted_evaluation_is_repeated_after_restart",
    ),
    (
        "Ctrl-C, with and without a launcher | both | 2 | the step is saved as after SIGTERM",
        "tests/trainer/test_preemption.py::test_ctrl_c_saves_like_sigterm",
    ),
    (
        "a rank that hangs, or whose process is stopped | both | 4 | stack traces, the rank at fault, exit code "
        "70; a launcher with restarts replaces the rank",
        "tests/trainer/test_watchdog.py::test_sleeping_rank_makes_all_ranks_print_stacks_and_exit",
        "tests/trainer/test_watchdog.py::test_stopped_process_is_reported",
        "tests/trainer/test_restarts.py::test_stopped_rank_is_replaced_on_its_host",
    ),
    (
        "a rank that is three times as slow | both (`language` without shards), `imagenet` | 1 | a straggler "
        "event with the rank",
        "tests/trainer/test_watchdog.py::test_rank_that_is_three_times_as_slow_is_reported",
    ),
    (
        "two undisturbed ranks for five seconds, compared over one second instead of five | both | 10 | no "
        "straggler event",
        "tests/trainer/test_watchdog.py::test_run_without_faults_reports_no_straggler",
    ),
    (
        "a loss or a weight that is not finite | both | 3 | exit code 65; no such weights are saved",
        "tests/trainer/test_training.py::test_loss_that_is_not_finite_ends_training",
        "tests/trainer/test_training.py::test_weights_that_are_not_finite_are_not_saved",
    ),
    (
        "no memory left after the first steps | both | 1 | exit code 1 with the flags to change",
        "tests/trainer/test_faults.py::test_memory_that_runs_out_after_the_first_steps_ends_run",
    ),
    (
        "an unexpected error | both | 1 | exit code 1 with the traceback",
        "tests/trainer/test_faults.py::test_defect_ends_run_with_its_traceback",
    ),
    (
        "no memory for the first step | `imagenet`, `language` | 1 | exit code 78 with the flags to change",
        "tests/trainer/test_cpu.py::test_batch_beyond_memory_ends_run_with_one_line",
    ),
    (
        "disk filled by a checkpoint, by the lines of JSON, by TensorBoard | both | 3 | exit code 74 with the path",
        "tests/trainer/test_faults.py::test_full_disk_ends_run_with_its_path",
        "tests/trainer/test_faults.py::test_disk_filled_by_events_ends_run",
    ),
    (
        "read-only disk | both | 1 | exit code 74 with the path",
        "tests/trainer/test_faults.py::test_read_only_disk_ends_run",
    ),
    (
        "13 damaged checkpoints of a run, each in its own way | both | 1 | each is skipped with its reason, and "
        "the final weights are identical to the bit",
        "tests/trainer/test_faults.py::test_broken_checkpoints_are_skipped_and_the_run_ends_with_the_same_result",
    ),
    (
        "SIGKILL at a random moment of a save | checkpoints without a recipe | 100 | 100 successful resumes",
        "tests/trainer/test_checkpoint.py::test_process_killed_during_save_leaves_complete_checkpoint",
    ),
    (
        "two ranks, then one, then two, preempted in the middle of an epoch | both | 1 | every sample of all "
        "epochs was trained on once",
        "tests/trainer/test_faults.py::test_restarts_with_two_one_two_ranks_take_every_sample_once",
    ),
    (
        "a second run of the same job | both | 1 | the first one ends with 78, the second continues",
        "tests/trainer/test_run_lease.py::test_newer_of_two_runs_continues",
    ),
    (
        "unreachable Weights & Biases | both | 1 | its local run has every logged number",
        "tests/trainer/test_faults.py::test_wandb_does_not_delay_training",
    ),
)
"""Rows of a quotation and the node ids of its tests."""
