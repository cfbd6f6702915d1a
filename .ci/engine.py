"""The Helm engine, as far as the chart's checks need it: lint and render, offline."""

import dataclasses

import helm_python
import yaml

SEVERITIES = ["unknown", "info", "warning", "error"]


@dataclasses.dataclass
class Rendered:
    """What one set of values makes of the chart."""

    objects: list
    notes: str


def read_values(path):
    with open(path, encoding="utf-8") as file:
        return helm_python.values_from_yaml(file.read()) or {}


def lint(chart, values, namespace):
    """The complaints of `helm lint --strict`, without mere information."""
    report = helm_python.lint(chart, values, strict=True, namespace=namespace)
    found = [
        f"{SEVERITIES[message['severity']]}: {message['path']}: {message['error']}"
        for message in report["messages"]
        if message["severity"] != SEVERITIES.index("info")
    ]
    return found + [error for error in report["errors"] if not any(error in line for line in found)]


def refusal(chart, values):
    """What the chart's schema says against these values; None when it takes them."""
    with helm_python.Chart.load(chart) as loaded:
        try:
            loaded.validate_schema(values)
        except helm_python.HelmError as error:
            return str(error)
    return None


def render(chart, values, release, namespace):
    with helm_python.Chart.load(chart) as loaded:
        loaded.validate_schema(values)
        files = loaded.render(values, name=release, namespace=namespace)
    objects, notes = [], ""
    for name in sorted(files):
        if name.endswith("NOTES.txt"):
            notes = files[name]
        elif not name.endswith(".tpl"):
            objects += [document for document in yaml.safe_load_all(files[name]) if document]
    return Rendered(objects, notes)
