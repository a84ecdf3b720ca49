"""Program that reads the calls of each stack from standard input, and makes the calls with botocore against moto.

The program runs in the virtual environment of the object stores. It writes JSON for each stack: the number of accepted
calls, the rejections, and the operations that moto lacks. For these operations, only botocore checks the parameters.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from typing import Any


def value_at(response: Any, path: str) -> Any:
    """Return the value at a path of a response."""
    for key in path.split("."):
        response = response[int(key)] if isinstance(response, list) else response[key]
    return response


def with_real_ids(value: Any, ids: dict[str, str]) -> Any:
    """Return a parameter with moto's ids in place of recorded ids, also inside texts such as policies."""
    if isinstance(value, dict):
        return {key: with_real_ids(each, ids) for key, each in value.items()}
    if isinstance(value, list):
        return [with_real_ids(each, ids) for each in value]
    if isinstance(value, str):
        for name in sorted(ids, key=len, reverse=True):
            value = value.replace(name, ids[name])
    return value


def enum_problems(shape: Any, value: Any, path: str) -> Iterator[str]:
    """Yield a problem for each value outside its enumeration. botocore does not check enumerations."""
    if shape.type_name == "structure":
        for key, each in value.items():
            yield from enum_problems(shape.members[key], each, f"{path}.{key}")
    elif shape.type_name == "list":
        for index, each in enumerate(value):
            yield from enum_problems(shape.member, each, f"{path}[{index}]")
    elif shape.type_name == "map":
        for key, each in value.items():
            yield from enum_problems(shape.value, each, f"{path}.{key}")
    elif shape.type_name == "string" and shape.enum and value not in shape.enum:
        yield f"{path}: {value!r} is not one of {', '.join(shape.enum)}"


def make(calls: list[dict[str, Any]]) -> dict[str, Any]:
    """Make the calls in order and return the results. Reject calls whose parameters do not match AWS's models."""
    import boto3
    from botocore.exceptions import ClientError
    from botocore.validate import ParamValidator
    from moto import mock_aws

    config = {"core": {"mock_credentials": True}, "iam": {"load_aws_managed_policies": True}}
    rejected, missing, ids = list[str](), set[str](), dict[str, str]()
    accepted = 0
    with mock_aws(config=config):
        clients = {name: boto3.client(name, region_name="us-west-2") for name in {each["service"] for each in calls}}
        for each in calls:
            client, name = clients[each["service"]], f"{each['service']}.{each['operation']}"
            parameters = with_real_ids(each["parameters"], ids)
            operation = client.meta.method_to_api_mapping[each["operation"]]
            shape = client.meta.service_model.operation_model(operation).input_shape
            report = ParamValidator().validate(parameters, shape).generate_report()
            if problem := report or "; ".join(enum_problems(shape, parameters, name)):
                rejected.append(f"{name}: {problem}")
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
                ids |= {mock: str(value_at(response, path)) for mock, path in each["response_paths"].items()}
    return {"accepted": accepted, "rejected": rejected, "missing": sorted(missing)}


if __name__ == "__main__":
    os.environ.update(AWS_ACCESS_KEY_ID="test", AWS_SECRET_ACCESS_KEY="test", AWS_DEFAULT_REGION="us-west-2")
    json.dump([make(calls) for calls in json.load(sys.stdin)], sys.stdout)
