"""The examples of the service's reference are messages that the service could send."""

import pytest

from latentbandits.serving.http.pages import ANSWERS, EXAMPLES, document, reference

OPERATIONS = {
    operation["operationId"]: operation
    for methods in document()["paths"].values()
    for operation in methods.values()
}


def problems(value, schema, schemas):
    """Return the fields of a value that its schema lacks, and those that the value lacks."""
    if "$ref" in schema:
        schema = schemas[schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        results = [problems(value, one, schemas) for one in schema["anyOf"]]
        return min(results, key=len)
    if isinstance(value, dict) and "properties" in schema:
        fields = schema["properties"]
        results = [f"unknown {name}" for name in set(value) - set(fields)]
        results += [f"missing {name}" for name in set(schema.get("required", ())) - set(value)]
        for name in set(value) & set(fields):
            results += problems(value[name], fields[name], schemas)
        return results
    if isinstance(value, list) and "items" in schema:
        return [line for one in value for line in problems(one, schema["items"], schemas)]
    if "enum" in schema:
        return [] if value in schema["enum"] else [f"{value!r} is not in {schema['enum']}"]
    wrong = isinstance(value, dict | list) != (schema.get("type") in ("object", "array", None))
    return [f"{value!r} is no {schema}"] if wrong else []


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_an_answer_has_the_fields_of_its_schema(name):
    schemas = document()["components"]["schemas"]
    answers = [
        answer["content"]["application/json"]["schema"]
        for status, answer in OPERATIONS[name]["responses"].items()
        if status < "300"
    ]
    assert min((problems(ANSWERS[name], schema, schemas) for schema in answers), key=len) == []


def test_a_wrong_answer_is_noticed():
    schemas = document()["components"]["schemas"]
    schema = {"$ref": "#/components/schemas/Rewarded"}
    assert problems({"decision_id": "1"}, schema, schemas) == ["missing status"]
    assert problems({"decision_id": "1", "status": "applied", "x": 1}, schema, schemas) != []


def test_every_operation_has_its_examples():
    assert set(OPERATIONS) - set(ANSWERS) == {"show_overview"}
    assert {name for name, one in OPERATIONS.items() if "requestBody" in one} == set(EXAMPLES)


def test_code_is_shown_as_code():
    shown = reference(document())
    assert "<code>decide</code>" in shown
    assert "`" not in shown
