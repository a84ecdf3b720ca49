"""Promises about cloud stacks: resources, policy, workflows and permissions.

The traps in docs/clouds.md have their tests in a table of that page, which tests/unit/test_docs.py checks.
"""

from __future__ import annotations

ROWS = {
    "docs/clouds.md": (
        (
            "network | VPC, one subnet with ranges for pods and services, Cloud NAT, private nodes | VPC in two or "
            "three zones, private subnets, NAT, endpoints for S3 and ECR",
            "tests/components/test_gke.py::test_gke_nodes_have_no_public_address",
            "tests/components/test_gke.py::test_gke_resources_are_created_in_order",
            "tests/components/test_eks.py::test_eks_endpoints_of_s3_and_ecr_are_in_vpc",
            "tests/components/test_eks.py::test_eks_nodes_have_no_public_address",
            "tests/components/test_eks.py::test_eks_subnets_are_inside_vpc_and_disjoint",
            "tests/components/test_eks.py::test_eks_network_has_one_nat_gateway_or_one_per_zone",
        ),
        (
            "reached by DNS name and IAM, or from listed networks | private endpoint, public only for listed "
            "networks; access entries; secrets encrypted with a KMS key; all logs",
            "tests/components/test_gke.py::test_gke_api_server_is_limited_to_dns_endpoint_or_authorized_networks",
            "tests/components/test_eks.py::test_eks_control_plane_is_private_encrypted_and_logged",
            "tests/components/test_eks.py::test_eks_public_endpoint_is_limited_to_authorized_networks",
            "tests/components/test_eks.py::test_eks_admins_have_access_entries_that_others_do_not_change",
        ),
        (
            "nodes | system pool, then the pools; shielded, own service account with one role | managed groups on "
            "Amazon Linux 2023, only version 2 of the metadata service, encrypted disks",
            "tests/components/test_gke.py::test_gke_resources_are_created_in_order",
            "tests/components/test_gke.py::test_gke_nodes_are_shielded",
            "tests/components/test_gke.py::test_gke_nodes_have_own_service_account",
            "tests/components/test_gke.py::test_gke_roles_are_minimal",
            "tests/components/test_eks.py::test_eks_fabric_node_has_all_adapters",
            "tests/components/test_eks.py::test_eks_nodes_require_metadata_tokens_and_encrypted_disks",
        ),
        (
            "jobs' identity | Workload Identity, `objectUser` on their bucket | Pod Identity, only their prefix of "
            "their bucket",
            "tests/components/test_gke.py::test_gke_job_account_is_limited_to_bucket",
            "tests/components/test_eks.py::test_eks_job_role_is_limited_to_bucket_prefix",
        ),
        (
            "bucket | uniform access, no public access, folders, soft delete, kept by default | no public access, "
            "TLS only, versions, kept by default",
            "tests/components/test_gke.py::test_gke_bucket_is_private_and_retained",
            "tests/components/test_eks.py::test_eks_bucket_is_private_encrypted_and_retained",
        ),
        (
            "built with buildx for amd64 and arm64",
            "tests/components/test_gke.py::test_gke_image_is_built_for_both_architectures",
        ),
        (
            "The kubeconfig contains no credentials",
            "tests/components/test_gke.py::test_gke_kubeconfig_has_no_credentials",
            "tests/components/test_eks.py::test_eks_kubeconfig_has_no_credentials",
        ),
        (
            "The kubeconfig contains no credentials: it runs `gke-gcloud-auth-plugin` or `aws eks get-token`. `make "
            "up` writes it to `.trainyard/<context>.kubeconfig`.",
            "tests/commands/test_stack.py::test_kubeconfig_of_cloud_stack_writes_missing_file_once",
        ),
        (
            "With `bucket.keep: true`, the default, `make down` keeps the bucket.",
            "tests/components/test_gke.py::test_gke_bucket_is_private_and_retained",
            "tests/components/test_eks.py::test_eks_bucket_is_private_encrypted_and_retained",
        ),
        (
            "`capacity: [reservation:NAME, flex-start, spot]` creates a node pool for each entry, all with zero "
            "nodes, and a ComputeClass that tries them in that order.",
            "tests/components/test_gke_pools.py::test_gke_fallback_order_is_compute_class",
        ),
        (
            "TPU slices of several hosts and compact pools also get one node pool per zone.",
            "tests/components/test_gke_pools.py::test_gke_fallback_order_across_zones_has_pool_per_zone",
        ),
        (
            "Each slice of several hosts is a separate node pool; single-host slices are nodes of one pool.",
            "tests/components/test_gke_pools.py::test_gke_multi_host_slices_have_one_pool_each",
            "tests/components/test_gke_pools.py::test_gke_pool_single_host_slice_has_no_topology",
        ),
        (
            "A pool has exactly one, because a managed node group cannot try several.",
            "tests/unit/test_eks_rules.py::test_eks_invalid_setting_has_code_and_path[settings.several_capacities]",
        ),
        (
            "Its options correspond to these keys, and `Pulumi.dev.yaml` describes its cluster.",
            "tests/unit/test_gke_rules.py::test_gke_defaults_equal_those_of_tutorial",
            "tests/unit/test_docs.py::test_clouds_page_tutorial_options_name_existing_keys",
        ),
        (
            "The calls that create an EKS stack run through botocore against moto.",
            "tests/components/test_aws_calls.py::test_aws_calls_are_accepted_by_botocore_and_moto",
        ),
        (
            "two machine types of A3 or A4, or two zones, in one platform | each needs its own networks; rejected "
            "with a reason: use two stacks",
            "tests/unit/test_gke_rules.py::test_gke_invalid_setting_has_code_and_path[gke.pool.fabrics_differ]",
        ),
        (
            "`make up` and `make preview` reject what AWS would reject (zones, VPC, skipped versions) before anything "
            "changes",
            "tests/unit/test_eks_rules.py::test_update_problems_of_unsupported_change_have_code_and_path",
            "tests/commands/test_report.py::test_report_eks_change_rejected_by_aws_fails_with_key_and_advice",
        ),
    ),
    "docs/policy.md": (
        (
            "A `mandatory` finding fails the preview; an `advisory` one is shown.",
            "tests/policy/test_rules.py::test_policy_levels_and_exceptions_of_stack_apply",
            "tests/commands/test_pull_requests.py::test_report_publicly_accessible_bucket_fails_policy",
        ),
        (
            "`exceptions` allows a resource to break a rule, for a reason that every preview shows.",
            "tests/commands/test_report.py::test_markdown_unused_policy_exception_is_listed",
        ),
        (
            "`may_replace` lists the pools with a running job and the buckets that a plan may replace or delete.",
            "tests/commands/test_plan.py::test_forbidden_pool_with_running_job_is_reported",
            "tests/commands/test_plan.py::test_forbidden_deleted_bucket_is_reported_unless_retained",
        ),
        (
            "Rules for stacks, generated from `policy/` by `python -m docs.references`.",
            "tests/unit/test_docs.py::test_generated_page_is_current[policy.md]",
            "tests/policy/test_rules.py::test_policy_rule_accepts_good_and_rejects_bad_inputs",
            "tests/policy/test_rules.py::test_policy_stacks_of_repository_follow_mandatory_rules",
        ),
    ),
    "docs/workflows.md": (
        (
            "`preview.yml` | a pull request | comments on each affected stack: changes, price, quota, policy, "
            "rehearsal",
            "tests/commands/test_affected_stacks.py::test_affected_of_a_program_file_gives_all_stacks",
            "tests/commands/test_affected_stacks.py::test_program_paths_cover_every_file_that_python_loads",
            "tests/commands/test_report.py::test_comment_longer_than_github_allows_is_cut_at_a_line",
        ),
        (
            "`destroy.yml` | manually, and every hour for stacks past their `ttl_hours`",
            "tests/unit/test_workflows.py::test_destroy_workflow_runs_every_hour",
            "tests/commands/test_ttl.py::test_is_expired_only_after_ttl_and_never_without_one",
        ),
        (
            "`up.yml` | a push to `main` | after the environment's approval: checks pools with running jobs, buckets, "
            "remaining quota and policy",
            "tests/unit/test_workflows.py::test_jobs_with_credentials_need_approval_of_their_stack",
        ),
        (
            "The clouds' official Pulumi plugins check and plan the same resources in a preview, without credentials "
            "and without access to a cloud.",
            "tests/commands/test_official.py::test_plugin_environment_has_no_credentials_and_a_closed_proxy",
        ),
        (
            "If they reject or plan something differently, Trainyard has a defect and the job fails.",
            "tests/commands/test_official.py::test_review_with_a_rejected_input_fails",
            "tests/commands/test_official.py::test_review_with_a_different_plan_of_the_plugin_fails",
            "tests/commands/test_official.py::test_report_with_a_different_plan_fails_and_shows_both_plans",
        ),
        (
            "If Pulumi cannot download a plugin, the report says that it was not used.",
            "tests/commands/test_official.py::test_review_without_the_plugin_reports_it_and_passes",
        ),
        (
            "A preview compares the program's declarations for a stack with those of the base commit's program. It "
            "therefore shows changes of the program, of a job's script and of a page in the stack's settings",
            "tests/commands/test_changed_program.py::test_preview_of_a_bucket_opened_by_the_program_shows_an_update",
            "tests/commands/test_changed_program.py::test_preview_of_an_edited_script_replaces_its_job",
        ),
        (
            "The report names the commit.",
            "tests/commands/test_preview.py::test_describe_base_names_commit_and_suggests_engine",
        ),
        (
            "For a deleted stack file, the report lists the costs that continue.",
            "tests/commands/test_changed_program.py::test_preview_of_a_removed_stack_warns_that_its_resources_remain",
        ),
        (
            "Pull requests from forks get only the summary",
            "tests/unit/test_workflows.py::test_pull_requests_from_forks_get_only_the_summary",
        ),
        (
            "Code of a pull request never runs with credentials.",
            "tests/unit/test_workflows.py::test_pull_request_workflow_has_no_credentials",
        ),
        (
            "**Variables and secrets** of the repository, or of an environment if stacks differ",
            "tests/commands/test_permissions.py::test_workflows_page_lists_all_variables_and_secrets_of_workflows",
        ),
        (
            "permissions eks > policy.json # an IAM policy: no wildcard action; changes in the stack's region",
            "tests/commands/test_permissions.py::test_eks_permissions_have_no_wildcard_action_and_only_stack_roles",
        ),
        (
            "permissions dev # roles in the project, granting limited to the stack's grants",
            "tests/commands/test_permissions.py::test_gke_permissions_have_no_basic_role_and_limit_grantable_roles",
        ),
        (
            "After a change of the settings that adds a kind of resource (a pool of A3 machines adds a firewall), "
            "grant the permissions again.",
            "tests/commands/test_permissions.py::test_gke_permissions_without_fabric_omit_security_admin",
        ),
        (
            "The tests check every action against AWS's own list of calls",
            "tests/commands/test_permissions.py::test_eks_permissions_actions_exist_in_botocore",
            "tests/commands/test_permissions.py::test_permissions_actions_and_roles_cover_every_cloud_kind",
        ),
        (
            "The roles for GKE contain the permissions of every call that Google's provider makes to create, read, "
            "update, delete and import these resources",
            "tests/commands/test_google_permissions.py::test_printed_roles_of_a_stack_permit_every_call",
        ),
    ),
}
"""Document -> rows of a quotation and the node ids of its tests."""
