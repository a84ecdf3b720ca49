"""Make the calls of each stack on standard input through botocore against moto, in the object stores' environment.

Writes JSON for each stack: the number of calls that moto accepted, the rejections of botocore or moto, and the
operations that moto does not implement, whose parameters botocore still checks.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any


def at(found: Any, path: str) -> Any:
    """Return the value at a path of a response."""
    for key in path.split("."):
        found = found[int(key)] if isinstance(found, list) else found[key]
    return found


def filled(value: Any, known: dict[str, str]) -> Any:
    """Return a parameter with the real ids, also inside texts such as policies."""
    if isinstance(value, dict):
        return {key: filled(each, known) for key, each in value.items()}
    if isinstance(value, list):
        return [filled(each, known) for each in value]
    if isinstance(value, str):
        for name in sorted(known, key=len, reverse=True):
            value = value.replace(name, known[name])
    return value


def unknown_words(shape: Any, value: Any, where: str) -> Iterator[str]:
    """Yield texts that are not in their enumeration, which botocore does not check."""
    if shape.type_name == "structure":
        for key, each in value.items():
            yield from unknown_words(shape.members[key], each, f"{where}.{key}")
    elif shape.type_name == "list":
        for index, each in enumerate(value):
            yield from unknown_words(shape.member, each, f"{where}[{index}]")
    elif shape.type_name == "map":
        for key, each in value.items():
            yield from unknown_words(shape.value, each, f"{where}.{key}")
    elif shape.type_name == "string" and shape.enum and value not in shape.enum:
        yield f"{where}: {value!r} is not one of AWS's words"


def make(calls: list[dict[str, Any]]) -> dict[str, Any]:
    """Make the calls in order, except those whose parameters do not match AWS's models."""
    import boto3
    from botocore.exceptions import ClientError
    from botocore.validate import ParamValidator
    from moto import mock_aws

    config = {"core": {"mock_credentials": True}, "iam": {"load_aws_managed_policies": True}}
    rejected, missing, known = list[str](), set[str](), dict[str, str]()
    accepted = 0
    with mock_aws(config=config):
        clients = {name: boto3.client(name, region_name="us-west-2") for name in {each["service"] for each in calls}}
        for each in calls:
            client, name = clients[each["service"]], f"{each['service']}.{each['operation']}"
            parameters = filled(each["parameters"], known)
            operation = client.meta.method_to_api_mapping[each["operation"]]
            shape = client.meta.service_model.operation_model(operation).input_shape
            wrong = ParamValidator().validate(parameters, shape).generate_report()
            if wrong := wrong or "; ".join(unknown_words(shape, parameters, name)):
                rejected.append(f"{name}: {wrong}")
                continue
            try:
                response = getattr(client, each["operation"])(**parameters)
            except NotImplementedError:
                missing.add(name)
            except ClientError as error:
                if "Not yet implemented" in str(error):
                    missing.add(name)
                else:
                    rejected.append(f"{name}: {error}")
            else:
                accepted += 1
                known |= {mock: str(at(response, path)) for mock, path in each["gives"].items()}
    return {"accepted": accepted, "rejected": rejected, "missing": sorted(missing)}


if __name__ == "__main__":
    os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_DEFAULT_REGION="us-west-2")
    json.dump([make(calls) for calls in json.load(sys.stdin)], sys.stdout)
