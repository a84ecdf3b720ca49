"""Promises about rehearsals and jobs on TPUs."""

from __future__ import annotations

ROWS = {
    "docs/rehearsal.md": (
        (
            "It brings the stack up, reports the placement of pods on nodes, destroys the stack, and checks that "
            "nothing is left.",
            "tests/rehearsal/test_rehearsal.py::test_dev_stack_has_two_hosts_with_two_gpus_each",
        ),
        (
            "The exit status is 0 if the stack would work.",
            "tests/rehearsal/test_rehearsal.py::test_dev_stack_has_two_hosts_with_two_gpus_each",
            "tests/rehearsal/test_rehearsal.py::test_quota_too_small_fails_with_its_name",
        ),
        (
            "make rehearse STACK=dev NAME=another # while another rehearsal runs",
            "tests/rehearsal/test_folder.py::test_rehearsal_lock_rejects_a_name_in_use",
            "tests/rehearsal/test_folder.py::test_reserve_port_differs_by_process_and_name",
        ),
        (
            "nodes | simulated by kwok, with the labels, taints, capacity and allocatable of their machine type",
            "tests/rehearsal/test_nodes.py::test_gke_gpu_nodes_have_labels_and_taints",
            "tests/unit/test_node_capacity.py::test_gke_allocatable_equals_simulated_node",
        ),
        (
            "pods of jobs | scheduled by the real scheduler, simulated by kwok",
            "tests/rehearsal/test_rehearsal.py::test_pod_that_no_node_fits_fails_the_rehearsal",
            "tests/rehearsal/test_simulated_pods.py::test_pods_run_after_kwok_was_killed",
        ),
        (
            "operators | the real programs, each with its own address",
            "tests/rehearsal/test_rehearsal.py::test_eks_operators_create_and_place_pods",
        ),
        (
            "buckets | real ones of [fake-gcs-server](https://github.com/fsouza/fake-gcs-server) or "
            "[moto](https://github.com/getmoto/moto) on 127.0.0.1: the rehearsal writes each job's checkpoint to the "
            "URL that its pods have; the server rejects the deletion of a bucket with objects",
            "tests/rehearsal/test_object_store.py::test_delete_bucket_with_objects_is_rejected",
        ),
        (
            "encrypted settings | replaced by a placeholder, because only their owner can decrypt them",
            "tests/rehearsal/test_folder.py::test_write_settings_quotes_texts_that_look_like_numbers",
        ),
        (
            "The rehearsal checks the inputs of resources against tables of facts",
            "tests/rehearsal/test_engine.py::test_preview_rejects_a_wrong_input_with_its_rule",
            "tests/rehearsal/test_facts.py::test_check_rejects_what_the_real_provider_rejects",
        ),
        (
            "Each table names the commit, and each fact the line.",
            "tests/rehearsal/test_facts.py::test_table_of_facts_is_complete",
        ),
        (
            "`python -m simulation.facts CHECKOUT` prints the facts that differ from a provider's checkout",
            "tests/rehearsal/test_reading_facts.py::test_changes_lists_changed_facts",
        ),
        (
            "The simulated clouds also reject operations that are out of order: - the project has not enabled the API "
            "- an input refers to a resource that does not exist - the name already exists - a network to delete "
            "still has users - a quota (`--quota REGION/NAME=LIMIT`) is exceeded",
            "tests/rehearsal/test_lifecycle.py::test_create_without_an_enabled_api_is_rejected",
            "tests/rehearsal/test_lifecycle.py::test_create_with_a_missing_reference_is_rejected",
            "tests/rehearsal/test_lifecycle.py::test_create_with_an_existing_name_is_rejected",
            "tests/rehearsal/test_lifecycle.py::test_delete_network_with_users_is_rejected",
            "tests/rehearsal/test_rehearsal.py::test_quota_too_small_fails_with_its_name",
        ),
        (
            "After `up`, a pending pod fails the rehearsal with the scheduler's message.",
            "tests/rehearsal/test_rehearsal.py::test_pod_that_no_node_fits_fails_the_rehearsal",
        ),
        (
            "If `up` itself fails, the report has Pulumi's errors and the resources that were created before.",
            "tests/rehearsal/test_rehearsal.py::test_quota_too_small_fails_with_its_name",
            "tests/rehearsal/test_report.py::test_report_of_a_failed_up_has_no_placement",
        ),
        (
            "The report ends with the limits of every rehearsal",
            "tests/rehearsal/test_report.py::test_report_ends_with_unknowns",
        ),
        (
            "`FAULT=KIND:RESOURCE` injects one fault, for the first resource whose type contains the word RESOURCE. "
            "`up` then runs again and must succeed, and `destroy` must empty the cloud.",
            "tests/rehearsal/test_faults.py::test_a_second_up_converges",
            "tests/rehearsal/test_rehearsal.py::test_after_a_fault_a_second_up_converges[crash:nodepool]",
        ),
        (
            "`stockout:nodepool:gpus` (EKS: `stockout:nodegroup:gpus`) hits the first node pool of pool `gpus`.",
            "tests/rehearsal/test_lifecycle.py::test_fault_with_a_name_hits_only_that_resource",
        ),
        (
            "`timeout:cluster` | the client stops waiting; the cloud completes the creation",
            "tests/rehearsal/test_lifecycle.py::test_create_with_a_timeout_keeps_the_resource",
        ),
        (
            "`slow:nodepool` | creation takes twenty times as long; if that exceeds the program's timeout, the effect "
            "is that of `timeout`",
            "tests/rehearsal/test_lifecycle.py::test_slow_create_exceeds_the_timeout",
        ),
        (
            "`crash:nodepool` | Pulumi is killed after the cloud has created the resource and before it answers",
            "tests/rehearsal/test_lifecycle.py::test_crash_happens_after_the_creation",
        ),
        (
            "`eventual:account` | the first resource that refers to the new resource fails, because the cloud does "
            "not find it yet",
            "tests/rehearsal/test_lifecycle.py::test_eventual_fault_hides_a_new_resource_once",
        ),
        (
            "`leak:account` | the cloud reports a deletion but keeps the resource: the rehearsal must fail",
            "tests/rehearsal/test_killed.py::test_verify_empty_names_a_leaked_resource",
            "tests/rehearsal/test_report.py::test_report_with_leftovers_does_not_pass",
        ),
        (
            "`denied:7` | the seventh call that changes something lacks the permission",
            "tests/rehearsal/test_lifecycle.py::test_fault_happens_once",
        ),
        (
            "It kills Pulumi after the k-th call of an update, and again after the k-th call of a destroy; the next "
            "commands must converge and leave nothing.",
            "tests/rehearsal/test_killed.py::test_up_and_destroy_after_a_kill_converge",
            "tests/rehearsal/test_killed.py::test_destroy_after_a_killed_update_leaves_nothing",
        ),
        (
            "The report estimates `up` and `destroy` in the real clouds from typical durations of each kind of "
            "resource, along the longest chain of dependent resources.",
            "tests/rehearsal/test_report.py::test_longest_chain_adds_its_durations",
        ),
    ),
    "docs/tpu.md": (
        (
            "1 (default) | one process per host; all hosts run one program, which XLA partitions over all chips (SPMD)",
            "tests/unit/test_command.py::test_host_command_xla_on_one_host_runs_one_process",
            "tests/trainer/test_xla.py::test_spmd_losses_equal_single_device_losses",
        ),
        (
            "the host's chips | torchrun with one process per chip, which average their gradients",
            "tests/trainer/test_xla.py::test_replicas_average_their_gradients",
        ),
        (
            "`--sharding=model` also shards the weights of convolutions and linear layers",
            "tests/trainer/test_xla.py::test_tensors_have_the_shardings_of_the_meshes",
        ),
        (
            "GKE sets `TPU_WORKER_ID` and `TPU_WORKER_HOSTNAMES` in pods of an Indexed Job or JobSet that request "
            "TPUs. libtpu needs nothing else. The trainer derives the rank and the address of host 0 from them",
            "tests/trainer/test_process_group.py::test_hosts_of_a_slice_rendezvous_at_its_first_host",
            "tests/trainer/test_process_group.py::test_hosts_of_several_slices_are_numbered",
        ),
        (
            "With one process per host, the devices of all hosts share a model of recipe `language`.",
            "tests/trainer/test_xla.py::test_weights_and_optimizer_state_of_language_model_are_sharded",
        ),
        (
            "`shard` divides the model's `width`",
            "tests/trainer/test_xla.py::test_settings_without_support_on_xla_are_rejected",
            "tests/unit/test_language_rules.py::test_groups_that_xla_cannot_form_are_rejected",
        ),
        (
            "no `shard` with one process per chip",
            "tests/unit/test_language_rules.py::test_shards_with_a_process_for_each_chip_are_rejected",
        ),
        (
            "Training compiles two graphs, also after a resume.",
            "tests/trainer/test_xla.py::test_sharded_language_model_compiles_two_graphs",
            "tests/trainer/test_xla.py::test_xla_run_with_shards_resumes_to_the_bit",
        ),
        (
            "A checkpoint has the same format on every device: one from XLA resumes on CPUs and GPUs, and the other "
            "way round",
            "tests/trainer/test_xla.py::test_checkpoint_of_xla_resumes_on_cpu",
            "tests/trainer/test_xla.py::test_checkpoint_of_cpu_resumes_on_xla_with_accumulation_and_activation_checkpointing",
            "tests/trainer/test_xla.py::test_xla_run_with_shards_resumes_to_the_bit",
        ),
        (
            "Each host saves and reads the parts of its devices.",
            "tests/trainer/test_xla.py::test_hosts_save_and_read_the_parts_of_their_devices",
        ),
        (
            "The estimate of memory counts a score for each pair of a sample's tokens",
            "tests/unit/test_language_rules.py::test_attention_on_xla_keeps_a_score_for_each_pair_of_tokens",
        ),
        (
            "`compilations` in `train` lines counts the compilations by training steps: the first step and the second "
            "(which has the optimizer state), then no more.",
            "tests/trainer/test_xla.py::test_steps_after_the_third_compile_nothing",
        ),
        (
            "`--profile-steps=10-15` writes a trace of these steps to `<bucket>/profiles/<job>/proc_<host>`, a folder "
            "for each process.",
            "tests/trainer/test_xla.py::test_traces_are_in_the_folder_of_the_process",
        ),
        (
            "Its image is `trainer/Dockerfile.xla`, with its own packages (`trainer/requirements-xla.txt`).",
            "tests/components/test_gke.py::test_gke_tpu_job_runs_xla_image",
        ),
    ),
}
"""Document -> rows of a quotation and the node ids of its tests."""
