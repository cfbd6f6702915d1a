"""Checks the chart with Helm's own engine, Kubernetes' schemas and the rules in chart_rules.

usage: chart_check.py CHART [--show FILE] [--binaries DIR]

--show FILE     print what FILE's values render, and check nothing
--binaries DIR  also check that the services built there take the flags and files that the chart gives them
"""

import copy
import functools
import pathlib
import re
import subprocess
import sys
import tempfile

import helm_python
import kubernetes_validate
import trustme
import yaml

import chart_rules
import engine

KUBERNETES = "1.33"
RELEASE, NAMESPACE = "areev", "agents"
# Kinds that Kubernetes itself does not know; the rules look at them.
FOREIGN_GROUPS = ("cert-manager.io/", "monitoring.coreos.com/")
PRINT_SECONDS_MAX = 30
# Where the pods find their files.
PLACES = re.compile(r"/(?:etc|var/run|var/lib)/areev")
STAND_IN_KEY = "thirty-two bytes for a token key"


def main(arguments):
    options = dict(zip(arguments[1::2], arguments[2::2]))
    if not arguments or set(options) - {"--show", "--binaries"} or len(arguments) % 2 == 0:
        sys.exit(__doc__)
    chart = arguments[0]
    if "--show" in options:
        rendered = engine.render(chart, engine.read_values(options["--show"]), RELEASE, NAMESPACE)
        print(yaml.safe_dump_all(rendered.objects, sort_keys=False), rendered.notes, sep="---\n")
        return
    checked, complaints = 0, []
    for path in sorted(pathlib.Path(chart, "ci").glob("*.yaml")):
        count, found = check_values(chart, path, options.get("--binaries"))
        print(f"{path}: {count} objects, {len(found)} complaints")
        checked, complaints = checked + 1, complaints + [f"{path}: {line}" for line in found]
    refused, found = unknown_keys(chart)
    print(f"{refused} places of the values refuse an unknown key")
    complaints += found
    for line in complaints:
        print("error:", line)
    if complaints or not checked:
        sys.exit(1)
    print(f"Helm {helm_python.helm_sdk_version()}, Kubernetes {KUBERNETES}: {checked} sets of values are fine")


def check_values(chart, path, binaries):
    values = engine.read_values(path)
    found = engine.lint(chart, values, NAMESPACE)
    with helm_python.Chart.load(chart) as loaded:
        effective = loaded.merge_values(values)
    rendered = engine.render(chart, values, RELEASE, NAMESPACE)
    for thing in rendered.objects:
        if not thing["apiVersion"].startswith(FOREIGN_GROUPS):
            found += schema_errors(thing)
    for rule in chart_rules.RULES:
        found += [f"{rule.__name__}: {line}" for line in rule(rendered.objects, effective)]
    if "grpcurl" not in rendered.notes:
        found.append("the notes do not say how to call the runner")
    if binaries:
        found += settings_are_taken(rendered.objects, binaries)
    return len(rendered.objects), found


def schema_errors(thing):
    try:
        kubernetes_validate.validate(thing, KUBERNETES, strict=True)
    except kubernetes_validate.ValidationError as error:
        where = "/".join(str(part) for part in error.path)
        return [f"{thing['kind']} {thing['metadata']['name']}: {where}: {error.message}"]
    return []


def settings_are_taken(objects, binaries):
    """Whether each service takes its command line and its files, as its --print-config says."""
    with tempfile.TemporaryDirectory() as root:
        configs = {thing["metadata"]["name"]: thing["data"] for thing in chart_rules.of_kind(objects, "ConfigMap")}
        for name, labels, spec in chart_rules.pods(objects):
            service = chart_rules.component(labels)
            if service not in chart_rules.SERVICES:
                continue
            lay_out(root, spec, configs)
            given = [text.replace("$(POD_NAME)", f"{name}-0") for text in spec["containers"][0]["args"]]
            arguments = [PLACES.sub(lambda place: root + place.group(), text) for text in given]
            command = [str(pathlib.Path(binaries, f"{service}-svc").resolve()), *arguments, "--print-config"]
            done = subprocess.run(command, capture_output=True, text=True, timeout=PRINT_SECONDS_MAX, cwd=root)
            if done.returncode != 0:
                yield f"{service}-svc refuses what the chart gives it: {done.stderr.strip().replace(root, '')}"


def lay_out(root, spec, configs):
    """Puts a pod's volumes under a folder: configuration as it is, secrets as stand-ins."""
    volumes = {volume["name"]: volume for volume in spec["volumes"]}
    for mount in spec["containers"][0]["volumeMounts"]:
        folder = pathlib.Path(root + mount["mountPath"])
        folder.mkdir(parents=True, exist_ok=True)
        volume = volumes.get(mount["name"], {})
        if "configMap" in volume:
            files = configs[volume["configMap"]["name"]]
        elif mount["name"] == "tls":
            files = stand_in_certificate()
        elif "secret" in volume and "items" not in volume["secret"]:
            files = {"2026-11": STAND_IN_KEY}
        else:
            files = {item["path"]: "" for item in volume.get("secret", {}).get("items", [])}
        for name, text in files.items():
            folder.joinpath(name).write_text(PLACES.sub(lambda place: root + place.group(), text), encoding="utf-8")


@functools.cache
def stand_in_certificate():
    """What a certificate's secret holds: the services read it before they print what they were told."""
    authority = trustme.CA()
    issued = authority.issue_cert(f"{RELEASE}.{NAMESPACE}.svc.cluster.local")
    pems = {
        "tls.crt": issued.cert_chain_pems[0],
        "tls.key": issued.private_key_pem,
        "ca.crt": authority.cert_pem,
    }
    return {name: pem.bytes().decode() for name, pem in pems.items()}


def unknown_keys(chart):
    """Puts an unknown key into every table of the values in turn; the schema must refuse each."""
    with helm_python.Chart.load(chart) as loaded:
        values = loaded.merge_values({})
    refused, found = 0, []
    for path in tables(values):
        wrong = copy.deepcopy(values)
        table = wrong
        for key in path:
            table = table[key]
        table["unknownKey"] = 1
        if engine.refusal(chart, wrong) is None:
            found.append(f"values: an unknown key under {'.'.join(path) or 'the top'} is taken")
        else:
            refused += 1
    return refused, found


def tables(values, path=()):
    yield path
    for key, value in values.items():
        if isinstance(value, dict):
            yield from tables(value, (*path, key))


if __name__ == "__main__":
    main(sys.argv[1:])
