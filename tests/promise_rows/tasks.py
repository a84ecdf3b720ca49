"""Promises of the pages by task: first run, data, results, several jobs, profiles, W&B, hardware, GKE and EKS."""

from __future__ import annotations

ROWS = {
    "docs/README.md": (
        (
            "`make docs` builds these pages as a site in `site/`",
            "tests/unit/test_docs_site.py::test_navigation_has_every_page_once",
            "tests/unit/test_docs_site.py::test_site_links_lead_to_pages_of_the_site",
        ),
    ),
    "docs/dashboard.md": (
        (
            "New stacks appear within seconds, and so do the jobs that `up` adds, changes or removes",
            "tests/commands/test_dashboard_watch.py::test_dashboard_shows_the_jobs_that_up_adds_to_a_stack",
            "tests/commands/test_dashboard_watch.py::test_sources_read_a_state_once_for_each_write",
        ),
        (
            "The address has a random token, and a request without it is rejected.",
            "tests/commands/test_dashboard_server.py::test_page_needs_the_token_and_a_host_of_this_machine",
        ),
        (
            "The page loads nothing from a network.",
            "tests/commands/test_dashboard_server.py::test_page_loads_nothing_and_has_no_inline_handlers",
            "tests/commands/test_dashboard_server.py::test_browser_draws_ranks_curves_timeline_and_nodes",
        ),
        (
            "The dashboard ends with Ctrl-C, or when the last stack is gone.",
            "tests/commands/test_dashboard_server.py::test_ctrl_c_with_an_open_page_prints_one_line_and_ends_the_stream",
            "tests/commands/test_dashboard_server.py"
            "::test_dashboard_with_an_open_page_ends_when_its_last_stack_is_gone",
        ),
        (
            "lost | steps that were repeated after a restart, and the time until the processes ran again",
            "tests/commands/test_run_times.py"
            "::test_restart_loses_steps_after_the_checkpoint_and_the_time_until_it_runs",
        ),
    ),
    "docs/data.md": (
        (
            "`data: ./my-images` needs no copy: each node mounts the folder itself, read-only.",
            "tests/end_to_end/test_own_project.py::test_job_of_a_project_gets_its_packages_and_data_on_each_host",
        ),
        (
            "The stack's bucket is another folder of this machine, which pods see as `/bucket` and can write.",
            "tests/end_to_end/test_local_stack.py::test_up_writes_metrics_and_checkpoints_to_bucket",
        ),
        (
            "For recipe `language`, reading the settings rejects a folder without texts in `train/` or `test/`",
            "tests/unit/test_text_folder.py::test_folder_without_usable_text_is_rejected_with_key_folder_and_remedy",
        ),
        (
            "A recipe gets it as `--data-dir`, and `imagenet` also gets `--no-fake-data`.",
            "tests/unit/test_requirements_and_data.py::test_recipe_gets_its_data_as_flags",
        ),
        (
            "Their nodes cannot mount a folder of this machine, so a path such as `./my-images` is an error.",
            "tests/unit/test_requirements_and_data.py::test_data_that_pods_cannot_reach_has_code",
        ),
        (
            "Clouds have no `/bucket`.",
            "tests/unit/test_image_rules.py::test_image_problem_has_code_and_path",
        ),
        (
            "`stream: true` decodes each image when a step needs it and stores nothing.",
            "tests/trainer/test_bucket_images.py::test_bucket_images_are_read_once_an_epoch",
        ),
    ),
    "docs/eks.md": (
        (
            "AWS rejects this example, a range for documentation.",
            "tests/unit/test_eks_rules.py::test_eks_up_problems_reject_documentation_ranges",
        ),
        (
            "`make up` checks the credentials and the quota, shows the plan with its price, and asks before it "
            "creates anything in the cloud.",
            "tests/commands/test_price_question.py::test_ask_shows_plan_price_and_quota_before_the_question",
            "tests/commands/test_price_question.py::test_ask_without_a_yes_stops_before_the_update",
        ),
    ),
    "docs/first-run.md": (
        (
            "After Ctrl-C, `make up` continues and needs less, because existing files count",
            "tests/setup/test_disk.py::test_files_of_an_interrupted_set_up_reduce_the_need",
        ),
        (
            "After Ctrl-C, `make up` continues and needs less, because existing files count; `make doctor` shows how "
            "much.",
            "tests/setup/test_disk.py::test_doctor_reports_the_need_and_the_steps_of_set_up",
        ),
        (
            "On a terminal, the last line of a running job changes in place",
            "tests/commands/test_live_line.py::test_live_line_has_epoch_step_loss_rate_and_time_left",
            "tests/commands/test_screen.py::test_screen_readable_on_a_terminal_has_the_last_step_of_an_epoch_only",
        ),
        (
            "A file or a pipe gets every line of rank 0 instead.",
            "tests/commands/test_screen.py::test_live_line_without_a_terminal_is_not_shown",
            "tests/commands/test_screen.py::test_screen_readable_shows_rank_0_with_main_fields_and_errors_of_others",
        ),
        (
            "`make up VERBOSE=1` or `trainyard up --verbose` shows all output of Pulumi, the lines of all ranks with "
            "all fields",
            "tests/commands/test_screen.py::test_screen_all_shows_every_rank_of_many_with_all_fields",
            "tests/commands/test_up.py::test_print_outputs_prints_one_line_each_without_empty_values",
        ),
        (
            "Errors are always shown in full.",
            "tests/commands/test_pulumi_output.py"
            "::test_folded_output_of_a_failure_has_the_whole_diagnostic_without_colours",
        ),
        (
            "Ctrl-C ends only the output; the cluster and its jobs continue.",
            "tests/commands/test_follow.py::test_follow_stopped_by_ctrl_c_leaves_the_job_running",
        ),
        (
            "A job whose settings are the same does not run again; `make up` shows its result and the next steps.",
            "tests/commands/test_follow.py::test_report_finished_of_a_job_that_ended_before_up_prints_no_log",
            "tests/commands/test_jobs.py::test_finished_lines_have_the_next_commands",
        ),
    ),
    "docs/gke.md": (
        (
            "`make up` checks the credentials and the quota, shows the plan with its price, and asks before it "
            "creates anything in the cloud.",
            "tests/commands/test_price_question.py::test_ask_shows_plan_price_and_quota_before_the_question",
            "tests/commands/test_price_question.py::test_ask_without_a_yes_stops_before_the_update",
        ),
    ),
    "docs/hardware.md": (
        (
            "The machines with GPUs and TPUs that Trainyard knows, generated from `infra/hardware` and "
            "`infra/cost.py` by `python -m docs.references`.",
            "tests/unit/test_docs.py::test_generated_page_is_current[hardware.md]",
        ),
    ),
    "docs/profile.md": (
        (
            "`make up` then records the optimizer steps 10 to 15 of each rank.",
            "tests/trainer/test_faults.py::test_profile_contains_requested_steps",
        ),
        (
            "A run that resumes after step 15 records nothing and warns at its start.",
            "tests/trainer/test_faults.py::test_profile_outside_of_run_prints_warning",
        ),
    ),
    "docs/results.md": (
        (
            "After `FRESH=1`, report and dashboard show only the new run.",
            "tests/commands/test_dashboard_watch.py::test_feed_of_a_fresh_job_has_only_its_own_events_and_says_so",
            "tests/commands/test_jobs.py::test_rerun_fresh_moves_the_curves_to_the_earlier_runs",
            "tests/commands/test_report_of_job.py::test_report_after_rerun_fresh_has_only_the_fresh_run_and_its_time",
        ),
        (
            "the reasons of restarts and the last lines of a failed rank while its pods exist",
            "tests/commands/test_report_of_job.py::test_page_of_a_failed_job_has_reasons_of_restarts_and_the_last_lines",
        ),
        (
            "`make fetch JOB=digits TO=results` copies the newest checkpoint, the metrics and the run record out of "
            "the bucket.",
            "tests/commands/test_bucket.py::test_copy_results_copies_newest_checkpoint_and_metrics",
        ),
        (
            "`make report JOB=digits` writes one HTML page next to the run record",
            "tests/commands/test_report_of_job.py::test_page_shows_result_attempts_price_and_settings",
            "tests/commands/test_report_of_job.py::test_default_file_is_next_to_the_run_record_on_this_machine",
        ),
        (
            "The page loads nothing from a network",
            "tests/commands/test_report_of_job.py::test_page_is_well_formed_and_loads_nothing",
        ),
        (
            "`stop` waits until the hosts have ended, and prints the step that they saved.",
            "tests/commands/test_jobs.py::test_stop_saves_and_ends_the_pods_until_the_job_is_resumed",
            "tests/commands/test_quiet_hosts.py::test_stopped_job_is_reported_with_its_checkpoint_and_not_as_failed",
        ),
        (
            "The trainer saves its current step, and continues from exactly there",
            "tests/trainer/test_training.py::test_killed_and_preempted_run_ends_with_the_same_result",
            "tests/commands/test_jobs.py::test_stop_saves_and_ends_the_pods_until_the_job_is_resumed",
        ),
        (
            "`make rerun JOB=digits FRESH=1`, which asks before it deletes the checkpoints",
            "tests/commands/test_jobs.py::test_rerun_question_names_what_is_lost",
        ),
    ),
    "docs/several-jobs.md": (
        (
            "Jobs that cannot fit are rejected when the settings are read",
            "tests/unit/test_local_capacity.py::test_local_capacity_second_job_beyond_capacity_is_rejected",
        ),
    ),
    "docs/wandb.md": (
        (
            "If the service does not answer or rejects the key, training continues and the run stays in the bucket.",
            "tests/trainer/test_faults.py::test_wandb_does_not_delay_training",
            "tests/trainer/test_records.py::test_wandb_without_key_is_kept_in_the_folder",
        ),
        (
            "Every rank has its own run `JOB-RANK`, in a group with the job's name",
            "tests/trainer/test_gallery.py::test_every_rank_has_a_wandb_run_in_the_group_of_the_job",
        ),
    ),
}
"""Document -> rows of a quotation and the node ids of its tests."""
