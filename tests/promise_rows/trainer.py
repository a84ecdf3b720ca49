"""Promises about the trainer and its launcher."""

from __future__ import annotations

from tests.promise_rows.trainer_faults import FAULT_ROWS

ROWS = {
    "docs/trainer.md": (
        (
            "`python -m trainer.launch --nproc-per-node=2 -m trainer RECIPE --flags` trains on two ranks (the "
            "launcher has torchrun's flags).",
            "tests/trainer/test_training.py::test_two_hosts_learn",
            "tests/trainer/test_launch.py::test_flags_that_torchrun_rejects_are_bad_configuration",
        ),
        (
            "`python -m trainer RECIPE --help` lists every flag with its default.",
            "tests/trainer/test_config.py::test_help_describes_every_setting",
        ),
        (
            "`imagenet` | any classifier of torchvision or timm (`--arch`)",
            "tests/trainer/test_training.py::test_models_of_both_libraries_train_on_generated_images",
        ),
        (
            "An epoch predicts each token once, for any number of ranks.",
            "tests/trainer/test_texts.py::test_epoch_predicts_every_token_once_over_changing_ranks",
        ),
        (
            "A token attends to earlier tokens of its own document only.",
            "tests/trainer/test_decoder.py::test_documents_of_a_sample_do_not_see_each_other",
            "tests/trainer/test_decoder.py::test_token_depends_only_on_earlier_tokens",
        ),
        (
            "The gradient is clipped to `--clip-norm`.",
            "tests/trainer/test_decoder.py::test_clipping_returns_the_norm_and_shortens_long_gradients",
        ),
        (
            "`tensor` must divide the heads, the heads of keys and values, `--hidden`, `--context` and "
            "`--vocabulary`. Reading a stack's settings checks both.",
            "tests/unit/test_language_rules.py::test_language_flags_that_break_a_rule_are_rejected",
        ),
        (
            "Checkpoints of a sharded model have the same format. Any number and grouping of ranks can resume from it.",
            "tests/trainer/test_sharding.py::test_checkpoints_are_resumed_by_other_groups_of_ranks",
        ),
        (
            "`--parallelism=data=2,shard=4,tensor=2` divides 16 ranks.",
            "tests/trainer/test_language_sizes.py::test_divide_ranks",
            "tests/trainer/test_sharding.py::test_groups_of_ranks_have_the_losses_of_one_process",
        ),
        (
            "With `--tokenizer=bpe` rank 0 learns pairs of bytes from the first 256 MiB of the training texts, as "
            "many as `--vocabulary`, and saves them as `checkpoints/JOB/tokenizer.json`; a resumed run reads them "
            "there.",
            "tests/trainer/test_coder.py::test_resumed_run_keeps_the_learnt_tokens",
        ),
        (
            "`selective` keeps the results of matrix products and attention, and computes the rest again. The "
            "gradients are the same to the bit.",
            "tests/trainer/test_decoder.py::test_activation_checkpointing_gives_equal_gradients",
        ),
        (
            "Weights, gradients, checkpoints and exports keep their types, so a run can resume with or without float8.",
            "tests/trainer/test_float8.py::test_export_has_plain_weights_that_run_without_float8",
            "tests/trainer/test_float8.py::test_checkpoint_is_resumed_without_float8",
        ),
        (
            "Reading a stack's settings checks all of these, and a run checks its own GPU (78).",
            "tests/trainer/test_float8.py::test_device_without_float8_is_rejected",
            "tests/unit/test_language_rules.py::test_float8_is_rejected_on_hardware_without_it",
        ),
        (
            "`python -m trainer export --checkpoint FOLDER --to FOLDER` writes a checkpoint, or the newest one of a "
            "job, in Hugging Face's format for LlamaForCausalLM, in 32 or 16 bits (`--dtype`).",
            "tests/trainer/test_export.py::test_transformers_gives_the_same_logits",
            "tests/trainer/test_export.py::test_weights_loaded_from_several_files_equal_the_written_ones",
        ),
        (
            "`--init-from` starts a run from such a folder: each rank reads the rows that it needs.",
            "tests/trainer/test_export.py::test_exported_run_has_the_loss_of_its_evaluation",
        ),
        (
            "`--lora-rank` adds adapters to all linear layers of the blocks and trains only them",
            "tests/trainer/test_export.py::test_adapters_are_trained_saved_and_merged",
        ),
        (
            "Tensor groups divide the adapters with their layers.",
            "tests/trainer/test_sharding.py::test_groups_of_ranks_train_adapters_as_one_process",
        ),
        (
            "A preempted run ends the text early.",
            "tests/trainer/test_preemption.py::test_preempted_run_stops_generating_text",
        ),
        (
            "On a disk, the lines of a step are written before its checkpoint, so a killed run that resumes has a "
            "line of each step.",
            "tests/trainer/test_records.py::test_save_waits_for_the_lines_of_its_steps",
            "tests/trainer/test_language.py::test_killed_run_resumes_to_the_bit",
        ),
        ("0 | training is complete", "tests/trainer/test_training.py::test_two_hosts_learn"),
        (
            "1 | out of memory although earlier steps had enough, or a defect of the trainer, with its traceback",
            "tests/trainer/test_faults.py::test_memory_that_runs_out_after_the_first_steps_ends_run",
            "tests/trainer/test_cpu.py::test_translate_errors_after_first_step_allows_a_restart",
            "tests/trainer/test_faults.py::test_defect_ends_run_with_its_traceback",
        ),
        (
            "65 | diverged: the loss or a weight is not finite",
            "tests/trainer/test_training.py::test_loss_that_is_not_finite_ends_training",
            "tests/trainer/test_training.py::test_weights_that_are_not_finite_are_not_saved",
        ),
        (
            "66 | data or checkpoints missing or broken",
            "tests/trainer/test_training.py::test_missing_digits_end_run",
            "tests/trainer/test_checkpoint.py::test_resume_with_only_broken_checkpoints_raises",
        ),
        (
            "70 | hang: a rank did not answer within `--process-group-timeout`",
            "tests/trainer/test_watchdog.py::test_sleeping_rank_makes_all_ranks_print_stacks_and_exit",
        ),
        (
            "71 | a host was lost or preempted, and the job has no restarts left",
            "tests/trainer/test_script_restarts.py::test_lost_host_without_remaining_restarts_ends_job",
        ),
        (
            "74 | disk or bucket full, read-only or failing",
            "tests/trainer/test_faults.py::test_full_disk_ends_run_with_its_path",
            "tests/trainer/test_faults.py::test_disk_filled_by_events_ends_run",
            "tests/trainer/test_faults.py::test_read_only_disk_ends_run",
        ),
        (
            "75 | this rank was preempted (SIGTERM, Ctrl-C), and saved its current step if there was one; or another "
            "rank is gone",
            "tests/trainer/test_faults.py::test_preempted_run_saves_current_step",
            "tests/trainer/test_preemption.py::test_ctrl_c_saves_like_sigterm",
        ),
        (
            "78 | an invalid flag, such as a batch that never fits into memory, two conflicting flags, or a later run "
            "of the same job",
            "tests/trainer/test_config.py::test_invalid_flag_ends_process_with_its_exit_code",
            "tests/trainer/test_cpu.py::test_batch_beyond_memory_ends_run_with_one_line",
            "tests/trainer/test_run_lease.py::test_newer_of_two_runs_continues",
        ),
        (
            "`trainer.launch` exits with the code of the rank that failed first; ranks that lose another rank then "
            "exit with 75.",
            "tests/trainer/test_launch.py::test_launcher_exits_with_the_code_of_the_first_failed_rank",
            "tests/trainer/test_preemption.py::test_launcher_exits_with_the_code_of_the_killed_rank",
        ),
        (
            "If a launcher that restarts ranks has no restart left, it reports a rank that died by a signal as 256 "
            "minus the signal's number: 247 is SIGKILL.",
            "tests/trainer/test_restarts.py::test_rank_killed_beyond_restarts_ends_job",
        ),
        (
            "`--bucket` is a URL: `file:///...`, `gs://...` or `s3://...`",
            "tests/trainer/test_stores.py::test_run_in_a_bucket_saves_resumes_and_cleans_up",
            "tests/trainer/test_training.py::test_metrics_and_curves_are_written_to_the_bucket",
        ),
        (
            "The folder in the bucket is the job's name: at most 255 bytes, without `/\\*?[]#%` and `::`, without a "
            "leading `.`, without a space at either end, and not `checkpoints` or `profiles`.",
            "tests/trainer/test_config.py::test_invalid_flags_are_rejected_with_allowed_values",
        ),
        (
            "Without a bucket, the trainer rejects `--profile-steps`, `--wandb=offline` and `--wandb=online` (78)",
            "tests/trainer/test_config.py::test_invalid_flags_are_rejected_with_allowed_values",
        ),
        (
            "If a bucket answers 429 or 503, slowly, or incompletely, the client retries for seconds, and then the "
            "trainer retries.",
            "tests/trainer/test_stores.py::test_store_with_temporary_failures_loses_nothing",
            "tests/trainer/test_stores.py::test_silent_bucket_is_not_retried",
        ),
        (
            "A bucket that keeps failing, or without write permission, ends the run (74).",
            "tests/trainer/test_stores.py::test_store_with_permanent_failure_ends_run",
        ),
        (
            "A bucket that never answers blocks the client for three minutes and is not retried.",
            "tests/trainer/test_stores.py::test_silent_bucket_is_not_retried",
        ),
        (
            "`checkpoints/JOB/step-000000100/` | `rank-N-XXXXXXXX.tensors`, each rank's share under a new name for "
            "each save, and `checkpoint.json`, which is written last and completes it",
            "tests/trainer/test_run_lease.py::test_save_that_loses_the_lease_is_not_sealed",
            "tests/trainer/test_checkpoint.py::test_process_killed_during_save_leaves_complete_checkpoint",
            "tests/trainer/test_faults.py::test_ranks_killed_inside_saves_end_with_the_same_result",
        ),
        (
            "`JOB/metrics/rank-N.jsonl` | every event as a line of JSON, with NaN and infinity as null",
            "tests/trainer/test_training.py::test_metrics_and_curves_are_written_to_the_bucket",
            "tests/trainer/test_records.py::test_number_that_is_not_finite_becomes_null",
        ),
        (
            "`JOB/tensorboard/` | curves of rank 0",
            "tests/trainer/test_training.py::test_metrics_and_curves_are_written_to_the_bucket",
        ),
        (
            "`JOB/wandb/` | with `--wandb`: the run, which `wandb sync` can upload later if there was no network or "
            "no key",
            "tests/trainer/test_faults.py::test_wandb_does_not_delay_training",
            "tests/trainer/test_records.py::test_wandb_without_key_is_kept_in_the_folder",
        ),
        (
            "`profiles/JOB/rank-N/` | with `--profile-steps=10-15`: a trace of torch.profiler",
            "tests/trainer/test_faults.py::test_profile_contains_requested_steps",
        ),
        (
            "A run that ends or is preempted before step 15 writes the steps so far.",
            "tests/trainer/test_faults.py::test_profile_of_short_run_contains_existing_steps",
            "tests/trainer/test_faults.py::test_preempted_run_keeps_its_profile",
        ),
        (
            "A run that ends before step 10, or resumes at step 15 or later, warns at its start",
            "tests/trainer/test_faults.py::test_profile_outside_of_run_prints_warning",
        ),
        (
            "`torch.distributed.checkpoint` writes checkpoints in the background while training continues.",
            "tests/trainer/test_checkpoint.py::test_save_in_background_allows_training_to_continue",
        ),
        (
            "A load skips a checkpoint without `checkpoint.json`, which was never completed",
            "tests/trainer/test_checkpoint.py::test_resume_skips_broken_checkpoint_and_reports_it[never finished]",
            "tests/trainer/test_checkpoint.py::test_resume_after_kill_in_first_save_starts_from_scratch",
        ),
        (
            "It rejects a checkpoint with a missing or short file, a wrong checksum, another format or another model",
            "tests/trainer/test_checkpoint.py::test_resume_skips_broken_checkpoint_and_reports_it",
        ),
        (
            "If all completed checkpoints are rejected, the run ends (66)",
            "tests/trainer/test_checkpoint.py::test_resume_with_only_broken_checkpoints_raises",
        ),
        (
            "If the storage fails, or denies access to the newest checkpoint, the run ends (74)",
            "tests/trainer/test_checkpoint_places.py::test_checkpoint_in_failing_storage_raises",
        ),
        (
            "A load restores weights, optimizer, float16's loss scale, position in the data and random number "
            "generators.",
            "tests/trainer/test_training.py::test_killed_and_preempted_run_ends_with_the_same_result",
            "tests/trainer/test_checkpoint.py::test_float16_loss_scale_is_restored",
        ),
        (
            "Another number of ranks resumes at the same sample.",
            "tests/trainer/test_sampler.py::test_restarts_with_other_worlds_repeat_and_skip_nothing",
            "tests/trainer/test_faults.py::test_restarts_with_two_one_two_ranks_take_every_sample_once",
        ),
        (
            "Batch statistics (BatchNorm's) are those of rank 0, as in the evaluation.",
            "tests/trainer/test_evaluation.py::test_ranks_evaluate_and_save_with_statistics_of_rank_0",
        ),
        (
            "The newest `--keep-checkpoints` complete checkpoints stay, and older ones stay for `--keep-hours`.",
            "tests/trainer/test_checkpoint.py::test_retention_deletes_checkpoints_beyond_number_and_age",
            "tests/trainer/test_stores.py::test_bucket_checkpoints_are_kept_by_number_and_age",
        ),
        (
            "Each save reads the manifests and file sizes again, so a checkpoint that was damaged meanwhile does not "
            "count.",
            "tests/trainer/test_checkpoint.py::test_retention_does_not_count_damaged_checkpoint",
        ),
        (
            "If a step is saved again, for example at the end of an epoch, its old files stay until the new manifest "
            "is written.",
            "tests/trainer/test_checkpoint.py::test_save_of_same_step_keeps_old_checkpoint_until_sealed",
        ),
        (
            "The first save detects a disk folder that the hosts do not share (74)",
            "tests/trainer/test_checkpoint_places.py::test_tensor_file_on_another_disk_prevents_the_seal",
        ),
        (
            "With `--max-restarts` and a static rendezvous, as in an `indexed-job`, the launchers of all hosts "
            "restart the job's ranks together, each in its own pod",
            "tests/trainer/test_restarts.py::test_killed_ranks_restart_while_all_launchers_stay",
            "tests/end_to_end/test_local_stack.py::test_killed_rank_restarts_in_place_and_resumes",
        ),
        (
            "The launchers count the restarts of the whole job.",
            "tests/trainer/test_rounds.py::test_failures_of_all_hosts_count_once",
            "tests/trainer/test_rounds.py::test_new_host_0_gets_round_and_count_from_the_others",
        ),
        (
            "When a host is lost, the others wait for its next launcher",
            "tests/trainer/test_restarts.py::test_launchers_wait_for_a_lost_host",
        ),
        (
            "This counts as a restart, unless the host was preempted (SIGTERM) and could notify the others.",
            "tests/trainer/test_rounds.py::test_preempted_host_costs_no_restart",
            "tests/trainer/test_restarts.py::test_preempted_host_costs_no_restart",
        ),
        (
            "The job ends at once if no restart is left, or after 65, 66, 69 and 78. Every launcher then exits.",
            "tests/trainer/test_rounds.py::test_job_ends_on_every_host_when_restarts_are_used_up",
            "tests/trainer/test_restarts.py::test_rank_with_final_exit_code_ends_job",
            "tests/unit/test_command.py::test_final_exit_codes_equal_those_of_launcher",
        ),
        (
            "A launcher prints `restart number=2 counted=2/3 failed_rank=1 exit_code=-9`.",
            "tests/end_to_end/test_local_stack.py::test_killed_rank_restarts_in_place_and_resumes",
        ),
        (
            "Ranks whose launcher is killed save the step and exit (75)",
            "tests/trainer/test_launch.py::test_ranks_with_killed_launcher_save_and_stop",
        ),
        (
            "If two runs of a job do start, the later one continues from what the other saved.",
            "tests/trainer/test_run_lease.py::test_newer_of_two_runs_continues",
        ),
        (
            "At its start a run writes its name into `owner`. A run that finds another name there before a save "
            "changes nothing and exits (78).",
            "tests/trainer/test_run_lease.py::test_run_without_lease_saves_nothing",
            "tests/trainer/test_run_lease.py::test_newer_of_two_runs_continues",
        ),
        (
            "A crashed run cannot block its successor.",
            "tests/trainer/test_training.py::test_killed_and_preempted_run_ends_with_the_same_result",
        ),
        (
            "If a rank makes no progress for `--process-group-timeout` seconds (at least five minutes until its first "
            "step), every rank prints the stacks of all its threads and exits with 70.",
            "tests/trainer/test_watchdog.py::test_sleeping_rank_makes_all_ranks_print_stacks_and_exit",
        ),
        (
            "It also prints the rank that made the least progress, or whose process is stopped.",
            "tests/trainer/test_watchdog.py::test_sleeping_rank_makes_all_ranks_print_stacks_and_exit",
            "tests/trainer/test_watchdog.py::test_stopped_process_is_reported",
        ),
        (
            "An event `straggler` reports a rank whose own part of the steps takes 1.5 times the median of the "
            "others' in three windows of at least five seconds.",
            "tests/trainer/test_watchdog.py::test_stragglers_report_rank_that_stays_slow",
            "tests/trainer/test_watchdog.py::test_rank_that_is_three_times_as_slow_is_reported",
            "tests/trainer/test_watchdog.py::test_run_without_faults_reports_no_straggler",
        ),
        (
            "`rate`, `global_rate` | samples per second: of this rank since the last event; of all ranks since the "
            "start",
            "tests/trainer/test_training.py::test_every_rank_reports_itself_and_its_rate",
        ),
        (
            "`data_wait` | percent of the steps' time that the rank's device waited for data",
            "tests/trainer/test_step_log.py::test_step_time_is_split_into_data_wait_and_useful_time",
            "tests/trainer/test_step_log.py::test_device_with_work_left_does_not_wait_for_data",
        ),
        (
            "`teraflops`, `mfu` | 10^12 operations per second (missing if shapes alone do not determine the model's "
            "operations)",
            "tests/trainer/test_step_log.py::test_flops_of_value_dependent_model_are_none",
        ),
        (
            "`test` events have the `accuracy` and `top5` (percent of samples whose class is among the model's first "
            "five) of the whole test set",
            "tests/trainer/test_evaluation.py::test_scores_ignore_samples_without_class",
            "tests/trainer/test_training.py::test_ranks_evaluate_the_whole_test_set",
        ),
        (
            "All ranks must find as many samples and classes as rank 0, with every recipe, or the run ends (66).",
            "tests/trainer/test_training.py::test_different_data_on_another_host_is_rejected",
        ),
        (
            "`--data-dir` is a folder, on a disk or in a bucket (`gs://`, `s3://`), in one of these layouts",
            "tests/trainer/test_images.py::test_layouts_give_the_same_images",
            "tests/trainer/test_bucket_images.py::test_bucket_layouts_give_the_same_images_as_a_disk",
        ),
        (
            "There must be two or more classes. Links are followed.",
            "tests/trainer/test_image_folders.py::test_images_of_one_class_are_rejected",
            "tests/trainer/test_image_folders.py::test_links_to_classes_and_images_are_followed",
        ),
        (
            "A warning counts hidden files (whose name, or a folder's above, begins with a dot) and files whose "
            "suffixes are not those of images.",
            "tests/trainer/test_image_folders.py::test_files_that_are_not_images_are_counted",
            "tests/trainer/test_image_folders.py::test_hidden_files_are_neither_classes_nor_images",
        ),
        (
            "One rank per host decodes the images once into `--cache-dir`",
            "tests/trainer/test_image_cache.py::test_cache_decodes_images_once",
            "tests/trainer/test_bucket_images.py::test_bucket_images_are_decoded_once_into_the_cache",
        ),
        (
            "A file is decoded again if it was rewritten (by its time on a disk, by its ETag in a bucket) or if the "
            "cache is damaged.",
            "tests/trainer/test_image_cache.py::test_cache_decodes_changed_images_again",
            "tests/trainer/test_image_cache.py::test_cache_that_is_damaged_is_replaced",
        ),
        (
            "If the disk is too small, the run prints the required size.",
            "tests/trainer/test_image_cache.py::test_cache_on_too_small_disk_is_rejected",
        ),
        (
            "A tenth of the disk stays free; if less is free, 99 % of the free space stays free.",
            "tests/trainer/test_image_cache.py::test_cache_on_nearly_full_disk_may_use_a_hundredth_of_the_free_space",
        ),
        (
            "Images that cannot be decoded are skipped and counted, and the first ten are listed.",
            "tests/trainer/test_images.py::test_broken_images_are_counted_and_reported",
            "tests/trainer/test_images.py::test_first_ten_broken_images_are_listed",
            "tests/trainer/test_images.py::test_data_set_of_mostly_broken_images_is_rejected",
        ),
        (
            "It also rejects models that do not output one score per class (detection, segmentation, optical flow, "
            "video, quantized), and an `--image-size` that a fixed-size model does not support.",
            "tests/trainer/test_models.py::test_model_that_is_not_a_classifier_is_rejected",
            "tests/trainer/test_models.py::test_image_size_that_a_model_rejects_is_bad_configuration",
        ),
        (
            "torchvision's `vit_*` and timm's models are built for the requested size, `inception_v3` and `googlenet` "
            "without their auxiliary losses.",
            "tests/trainer/test_models.py::test_models_accept_the_image_size_and_give_one_score_per_class",
        ),
        (
            "One rank reads each image once per epoch, for any number of ranks.",
            "tests/trainer/test_bucket_images.py::test_bucket_images_on_two_ranks_equal_disk_images",
        ),
        (
            "To find the samples of a bucket's shards, one rank reads each shard once at the start.",
            "tests/trainer/test_bucket_images.py::test_bucket_shards_are_each_listed_by_one_rank",
        ),
        (
            "A shard that is truncated or damaged between its members ends the run (66)",
            "tests/trainer/test_image_folders.py::test_truncated_shard_is_rejected",
        ),
        (
            "A broken image has no effect on training or on the accuracy of the test set.",
            "tests/trainer/test_images.py::test_broken_images_of_a_stream_are_reported_when_read",
            "tests/trainer/test_evaluation.py::test_evaluation_does_not_count_unreadable_image",
        ),
        (
            "`/opt/trainyard/sbom.cdx.json` lists the image's Python packages with their versions",
            "tests/end_to_end/test_examples.py::test_example_interactive_hosts_train_by_hand",
        ),
        (
            "`--compile` needs Debian's `g++` and Python's headers, which are included: torch compiles its kernels "
            "with them, also for a GPU. In a user's image without them, such a run ends with 78.",
            "tests/trainer/test_training.py::test_compile_without_compiler_is_rejected",
        ),
        (
            "torch 2.15 has kernels for GPUs from the T4 on",
            "tests/trainer/test_gpu.py::test_trainer_torch_has_kernels_for_every_gpu_that_runs_it",
        ),
        (
            "The build argument `TORCH=-cuda12` builds the image with torch 2.10 on CUDA 12.8 "
            "(`trainer/requirements-cuda12.txt`), for V100s and older drivers. Stacks build it for jobs on V100s",
            "tests/components/test_gke.py::test_gke_job_on_v100_runs_cuda12_image",
        ),
        (
            "the digits recipe reaches 98.5 %",
            "tests/trainer/test_training.py::test_digits_recipe_with_defaults_reaches_documented_accuracy",
        ),
        *FAULT_ROWS,
    ),
}
"""Document -> rows of a quotation and the node ids of its tests."""
