"""`python -m simulation.facts` reads the properties of inputs from a Terraform provider's Go source."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from simulation.cloud.fact_table import FOLDER
from simulation.facts import __main__ as command
from simulation.facts.__main__ import AMAZON, GOOGLE

SERVICE = """package resourcemanager

import (
	"github.com/hashicorp/terraform-plugin-sdk/v2/helper/customdiff"
	"github.com/hashicorp/terraform-plugin-sdk/v2/helper/schema"
	"example.com/provider/google-beta/tpgresource"
	"example.com/provider/google-beta/verify"
)

const shortest = 3

var common = map[string]*schema.Schema{
	"project": {
		Type:     schema.TypeString,
		Optional: true,
		Computed: true,
		ForceNew: true,
	},
}

func ResourceGoogleProjectService() *schema.Resource {
	return &schema.Resource{
		CustomizeDiff: customdiff.All(
			customdiff.ForceNewIfChange("service", becameOther),
		),
		Schema: tpgresource.MergeSchemas(common, map[string]*schema.Schema{
			"service": serviceName(40),
			"disable_on_destroy": {
				Type:          schema.TypeBool,
				Optional:      true,
				Default:       false,
				ConflictsWith: []string{"project"},
			},
			"no_such_input": {Type: schema.TypeString, Optional: true},
			"etag":          {Type: schema.TypeString, Computed: true},
		}),
	}
}

func serviceName(longest int) *schema.Schema {
	return &schema.Schema{
		Type:         schema.TypeString,
		Required:     true,
		ValidateFunc: validation.All(
			validation.StringLenBetween(shortest, longest),
			verify.ValidateEnum([]string{"a", "b"}),
		),
	}
}
"""
"""Source in the style of Google's provider, written for this test."""
TOKEN = "gcp:projects/service:Service"
AMAZON_FILES = {
    "internal/service/ec2/subnet.go": """package ec2

import (
	"github.com/hashicorp/terraform-plugin-sdk/v2/helper/schema"
	tftags "example.com/provider/internal/tags"
	"example.com/provider/names"
)

func resourceSubnet() *schema.Resource {
	return &schema.Resource{
		SchemaFunc: func() map[string]*schema.Schema {
			return map[string]*schema.Schema{
				names.AttrVPCID: {
					Type:     schema.TypeString,
					Required: true,
					ForceNew: true,
				},
				"private_dns_hostname_type_on_launch": {
					Type:             schema.TypeString,
					Optional:         true,
					ValidateDiagFunc: enum.Validate[awstypes.HostnameType](),
				},
				names.AttrTags: tftags.TagsSchema(),
			}
		},
	}
}
""",
    "internal/tags/tags.go": """package tags

import "github.com/hashicorp/terraform-plugin-sdk/v2/helper/schema"

var TagsSchema = sync.OnceValue(tagsSchema)

func tagsSchema() *schema.Schema {
	return &schema.Schema{
		Type:     schema.TypeMap,
		Optional: true,
		Elem:     &schema.Schema{Type: schema.TypeString},
	}
}
""",
    "internal/provider/sdkv2/internal/attribute/attributes.go": """package attribute

var Region = sync.OnceValue(func() *schema.Schema {
	return &schema.Schema{
		Type:     schema.TypeString,
		Optional: true,
		Computed: true,
	}
})
""",
    "names/attributes.go": """package names

const (
	AttrTags  = "tags"
	AttrVPCID = "vpc_id"
)
""",
}
"""Source in the style of AWS's provider, written for this test."""
FRAMEWORK = """package s3

func (r *bucketLifecycleConfigurationResource) Schema(ctx context.Context, request Request, response *Response) {
	response.Schema = schema.Schema{
		Attributes: map[string]schema.Attribute{
			"bucket": schema.StringAttribute{
				Required: true,
				PlanModifiers: []planmodifier.String{
					stringplanmodifier.RequiresReplace(),
				},
				Validators: []validator.String{
					stringvalidator.LengthBetween(1, 63),
				},
			},
			"id": framework.IDAttribute(),
		},
		Blocks: map[string]schema.Block{
			"rule": schema.ListNestedBlock{
				Validators: []validator.List{
					listvalidator.SizeAtLeast(1),
				},
				NestedObject: schema.NestedBlockObject{
					Attributes: map[string]schema.Attribute{
						"status": schema.StringAttribute{
							Required: true,
							Validators: []validator.String{
								stringvalidator.OneOf(statuses()...),
							},
						},
						"expiration": schema.StringAttribute{Computed: true},
					},
				},
			},
		},
	}
}

func statuses() []string {
	return []string{"Enabled", "Disabled"}
}
"""
"""Source of a resource of Terraform's plugin framework, written for this test."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """Return a checkout of a provider with one resource."""
    write_files(tmp_path, {"google-beta/services/resourcemanager/service.go": SERVICE})
    return tmp_path


def write_files(folder: Path, files: Mapping[str, str]) -> None:
    """Write files below a folder."""
    for name, text in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")


def read(checkout: Path) -> tuple[dict[str, Any], list[str]]:
    """Return the table of the only resource, and the names that Pulumi's SDK lacks."""
    return command.read(checkout, GOOGLE, TOKEN, "1234567")


def test_read_evaluates_helper_functions(checkout: Path) -> None:
    table, unnamed = read(checkout)
    inputs = {
        key: {name: each for name, each in fact.items() if "line" not in name} for key, fact in table["inputs"].items()
    }
    assert inputs == {
        "disableOnDestroy": {"type": "bool", "default": False, "conflicts": ["project"]},
        "project": {"type": "string", "computed": True, "force_new": True},
        "service": {
            "type": "string",
            "required": True,
            "length": [3, 40],
            "words": ["a", "b"],
            "replace_if": "becameOther",
        },
    }
    assert unnamed == ["no_such_input"]


def test_read_evaluates_aws_schema_functions(tmp_path: Path) -> None:
    write_files(tmp_path, AMAZON_FILES)
    table, unnamed = command.read(tmp_path, AMAZON, "aws:ec2/subnet:Subnet", "1234567")
    assert unnamed == []
    assert table["folder"] == "internal"
    hostnames = table["inputs"].pop("privateDnsHostnameTypeOnLaunch")
    assert hostnames["check"] == "Validate[awstypes.HostnameType]()"
    assert table["inputs"] == {
        "region": {
            "type": "string",
            "computed": True,
            "force_new": True,
            "line": "provider/sdkv2/internal/attribute/attributes.go:3",
        },
        "tags": {"type": "map(string)", "line": "service/ec2/subnet.go:23"},
        "vpcId": {"type": "string", "required": True, "force_new": True, "line": "service/ec2/subnet.go:13"},
    }


def test_read_converts_a_framework_resource(tmp_path: Path) -> None:
    write_files(tmp_path, {**AMAZON_FILES, "internal/service/s3/bucket.go": FRAMEWORK})
    token = "aws:s3/bucketLifecycleConfiguration:BucketLifecycleConfiguration"
    table, unnamed = command.read(tmp_path, AMAZON, token, "1234567")
    assert unnamed == []
    assert {path: fact for path, fact in table["inputs"].items() if fact["line"].startswith("service/")} == {
        "bucket": {
            "type": "string",
            "required": True,
            "force_new": True,
            "length": [1, 63],
            "line": "service/s3/bucket.go:6",
        },
        "rules": {"type": "list(block)", "required": True, "min_items": 1, "line": "service/s3/bucket.go:18"},
        "rules.status": {
            "type": "string",
            "required": True,
            "words": ["Enabled", "Disabled"],
            "line": "service/s3/bucket.go:24",
        },
    }


def test_newer_inputs_are_inputs_that_only_the_sdk_has() -> None:
    sdk = {"type": "string", "line": "pulumi-aws 7.51.1"}
    block = {"type": "block", "line": "pulumi-aws 7.51.1"}
    old = {"inputs": {"known": sdk, "newer": block, "newer.part": sdk, "output": sdk, "text": block, "text.part": sdk}}
    new = {"inputs": {"known": {"type": "string"}, "text": {"type": "string"}}}
    assert command.newer_inputs(old, new, {"output"}) == {"newer": block, "newer.part": sdk}


def test_keep_names_restores_the_names_of_anonymous_functions() -> None:
    new = {"inputs": {"policy": {"suppress": "function", "check": "function"}}}
    command.keep_names({"inputs": {"policy": {"suppress": "SuppressEquivalentJSONDiffs"}}}, new)
    assert new == {"inputs": {"policy": {"suppress": "SuppressEquivalentJSONDiffs", "check": "function"}}}


def test_changes_lists_changed_facts(checkout: Path) -> None:
    old, _ = read(checkout)
    new = json.loads(json.dumps(old))
    new["inputs"]["service"]["force_new"] = True
    del new["inputs"]["project"]
    assert [each.partition(",")[0] for each in command.changes(old, new)] == [
        f"{TOKEN} project: removed",
        f"{TOKEN} service.force_new: None -> True",
    ]


def test_updated_keeps_hand_written_rules(checkout: Path, tmp_path: Path) -> None:
    new, _ = read(checkout)
    rules = [{"rule": "any_of", "inputs": ["service"], "line": "service.go:1"}]
    kept = command.updated({**new, "inputs": {}, "rules": rules}, new)
    command.write_table(kept, tmp_path)
    assert command.read_table(TOKEN, tmp_path) == {**new, "rules": rules}


def test_main_rejects_a_folder_without_a_provider(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main([str(tmp_path)]) == 2
    assert "is not a checkout of hashicorp/terraform-provider-google-beta" in capsys.readouterr().err


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*/*.json")), ids=lambda file: file.stem)
def test_table_has_the_format_that_the_tool_writes(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    assert command.formatted(json.loads(text)) == text
