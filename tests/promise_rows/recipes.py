"""Promises of the examples in docs/recipes."""

from __future__ import annotations

EXAMPLES = "tests/end_to_end/test_examples.py"
ELASTIC = "tests/end_to_end/test_elastic_examples.py"
EVERY_RANK = f"{EXAMPLES}::test_example_every_rank_trains_to_completion"
MXNET = f"{EXAMPLES}::test_example_mxnet_learns_on_both_workers"

OTHER_TRAINER = f"{EXAMPLES}::test_example_of_other_trainer_learns_on_both_hosts"
FRAMEWORKS = "tests/trainer/test_frameworks.py"

ROWS = {
    "docs/recipes/README.md": (
        (
            "`make up JOB=NAME` runs it instead of the stack's jobs",
            "tests/unit/test_stack_config.py::test_jobs_may_be_names_of_examples",
        ),
        (
            "Tests read every block of every page.",
            "tests/unit/test_docs.py::test_example_block_is_valid_job",
            "tests/unit/test_docs.py::test_examples_index_lists_every_page",
        ),
    ),
    "docs/recipes/digits-jobset.md": (("Two hosts train as a JobSet.", f"{EVERY_RANK}[digits-jobset]"),),
    "docs/recipes/digits-ray.md": (
        (
            "Delete a host's pod while it trains: the operator recreates it, and all ranks continue from the last "
            "checkpoint.",
            "tests/end_to_end/test_ray_job.py::test_digits_ray_with_a_lost_pod_trains_to_the_end[worker]",
        ),
    ),
    "docs/recipes/digits-train-job.md": (
        ("A TrainJob with its own TrainingRuntime.", f"{EVERY_RANK}[digits-train-job]"),
    ),
    "docs/recipes/elastic-lightning.md": (
        (
            "When a host is killed during an epoch, the others form a new group within seconds and continue from the "
            "last checkpoint, at the same sample.",
            "tests/trainer/test_lightning.py::test_remaining_hosts_continue_and_accept_a_returning_host",
            "tests/trainer/test_lightning.py::test_another_number_of_ranks_takes_the_rest_of_the_epoch",
            f"{ELASTIC}::test_lightning_continues_without_host_and_readmits_it",
        ),
        (
            "At the end, rank 0 uploads the model to the job's folder in the bucket.",
            "tests/trainer/test_lightning.py::test_remaining_hosts_continue_and_accept_a_returning_host",
        ),
        (
            "With `rendezvous: etcd`, it is in an etcd that belongs to the job, and the job also survives the loss of "
            "host 0",
            f"{ELASTIC}::test_lightning_with_etcd_continues_without_host_0",
        ),
        (
            "Five such jobs from one specification, at the same time",
            f"{ELASTIC}::test_lightning_five_jobs_train_concurrently",
        ),
    ),
    "docs/recipes/elastic.md": (
        (
            "When a host is killed during an epoch, the others continue from the last checkpoint",
            f"{ELASTIC}::test_elastic_job_continues_without_host_and_readmits_it",
        ),
    ),
    "docs/recipes/deepspeed.md": (
        (
            "This job runs the script of [hf-trainer](hf-trainer.md) with one more argument: DeepSpeed's "
            "configuration.",
            f"{FRAMEWORKS}::test_framework_trains_on_two_ranks_and_saves_the_model[deepspeed]",
            f"{OTHER_TRAINER}[deepspeed]",
        ),
    ),
    "docs/recipes/hf-trainer.md": (
        (
            "When a rank or a host is lost, the script continues from the newest complete checkpoint.",
            f"{FRAMEWORKS}::test_hf_trainer_resumes_after_a_killed_rank_with_the_same_losses",
        ),
        (
            "Hugging Face's Trainer, which uses accelerate, trains a small Llama",
            f"{OTHER_TRAINER}[hf-trainer]",
        ),
    ),
    "docs/recipes/trl-sft.md": (
        (
            "TRL's SFTTrainer trains a small Llama on prompts and completions",
            f"{FRAMEWORKS}::test_framework_trains_on_two_ranks_and_saves_the_model[trl-sft]",
            f"{OTHER_TRAINER}[trl-sft]",
        ),
    ),
    "docs/recipes/interactive.md": (
        (
            "`make exec RANK=0` and `make exec RANK=1` open a shell on each host.",
            f"{EXAMPLES}::test_example_interactive_hosts_train_by_hand",
        ),
    ),
    "docs/recipes/language-spmd.md": (
        (
            "PyTorch/XLA partitions the program (SPMD)",
            f"{EXAMPLES}::test_example_language_spmd_shards_the_weights",
            "tests/trainer/test_xla.py::test_weights_and_optimizer_state_of_language_model_are_sharded",
        ),
        (
            "The losses are those of one CPU process within 1e-5",
            "tests/trainer/test_xla.py::test_sharded_language_model_has_losses_norms_and_sample_of_one_process",
        ),
        (
            "A chip needs 13 of its 95 GiB by the estimate.",
            "tests/unit/test_language_rules.py::test_example_fits_a_v5p_slice_by_the_estimate",
        ),
    ),
    "docs/recipes/mnist-spmd.md": (
        (
            "The losses are identical to those of a single device.",
            "tests/trainer/test_xla.py::test_spmd_losses_equal_single_device_losses",
        ),
        (
            "one process has eight virtual CPU devices",
            f"{EXAMPLES}::test_example_mnist_spmd_trains_on_eight_devices",
        ),
    ),
    "docs/recipes/mnist-xla-ddp.md": (
        (
            "Each process has its own model, and all average their gradients.",
            f"{EXAMPLES}::test_example_mnist_xla_ddp_averages_gradients",
            "tests/trainer/test_xla.py::test_replicas_average_their_gradients",
        ),
    ),
    "docs/recipes/mxnet-horovod.md": (
        ("Each worker prints its loss, rate and accuracy after every epoch.", f"{MXNET}[mxnet-horovod]"),
    ),
    "docs/recipes/mxnet-ps.md": (
        ("An MXJob with a scheduler, one parameter server and two workers.", f"{MXNET}[mxnet-ps]"),
    ),
    "docs/recipes/nccl-check.md": (
        (
            "It prints the bandwidth of each link, one way, in gigabits per second.",
            "tests/trainer/test_network_check.py::test_good_links_are_printed_and_training_runs",
            f"{EXAMPLES}::test_example_nccl_check_measures_links",
        ),
        (
            "If the slowest link is below the minimum, every rank exits with 69 and the job fails at once",
            "tests/trainer/test_network_check.py::test_slow_link_ends_job_before_training",
        ),
    ),
    "docs/recipes/pytorch-gloo.md": (
        (
            "Kubeflow's training-operator runs one Master and two Workers, which train on handwritten digits over "
            "gloo.",
            f"{EVERY_RANK}[pytorch-gloo]",
        ),
    ),
    "docs/recipes/resnet-fake.md": (
        ("Every rank prints step, loss, its rate, and the rate of all ranks.", f"{EVERY_RANK}[resnet-fake]"),
    ),
    "docs/recipes/s3-data.md": (
        (
            "Each rank reads its own share, and each image is read once per epoch, with any number of ranks and also "
            "after a restart.",
            "tests/trainer/test_bucket_images.py::test_bucket_images_are_read_once_an_epoch",
            f"{EXAMPLES}::test_example_s3_data_reads_each_sample_once_per_epoch",
        ),
    ),
    "docs/recipes/tf-horovod.md": (
        (
            "A launcher runs `mpirun` on two workers, which train a ResNet-50 on generated images. Horovod averages "
            "their gradients over MPI. Rank 0 prints the images per second of both.",
            f"{EXAMPLES}::test_example_tf_horovod_averages_gradients",
        ),
    ),
    "docs/recipes/tinyimagenet-wandb.md": (
        (
            "Every rank has its own run in Weights & Biases, in a group with the job's name.",
            "tests/trainer/test_gallery.py::test_every_rank_has_a_wandb_run_in_the_group_of_the_job",
            f"{EXAMPLES}::test_example_wandb_writes_runs_and_keeps_key_secret",
        ),
        (
            "Store the API key once per stack. Pulumi stores it encrypted, and the cluster in a Secret that only the "
            "job's pods read",
            "tests/components/test_program.py::test_program_secret_is_only_in_secret_of_job",
            f"{EXAMPLES}::test_example_wandb_writes_runs_and_keeps_key_secret",
        ),
    ),
}
"""Document -> rows of a quotation and the node ids of its tests."""
