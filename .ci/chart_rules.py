"""What must hold of every rendering of the chart. Each rule yields its complaints."""

import ipaddress
import re
import tomllib

SERVICES = ("runner", "sandbox", "broker")
PRIVATE_OR_METADATA = (
    "10.0.0.1", "172.16.0.1", "172.31.255.254", "192.168.1.1", "100.64.0.1", "127.0.0.1", "169.254.169.254",
    "169.254.170.2", "0.0.0.1", "224.0.0.1", "255.255.255.255", "::1", "fd00:ec2::254", "fc00::1", "fe80::1",
    "ff02::1", "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1",
)  # fmt: skip


def of_kind(objects, kind):
    return [thing for thing in objects if thing["kind"] == kind]


def pods(objects):
    """Every pod: its name, labels and spec, whatever brings it about."""
    for thing in objects:
        if thing["kind"] == "Pod":
            yield thing["metadata"]["name"], thing["metadata"].get("labels", {}), thing["spec"]
        elif "template" in thing.get("spec", {}):
            template = thing["spec"]["template"]
            yield thing["metadata"]["name"], template["metadata"].get("labels", {}), template["spec"]


def component(labels):
    return labels.get("app.kubernetes.io/component")


def selects(selector, labels):
    """Whether a label selector of matchLabels alone selects the labels."""
    return all(labels.get(key) == value for key, value in (selector or {}).get("matchLabels", {}).items())


def pods_are_fenced(objects, _values):
    for name, _, spec in pods(objects):
        if spec.get("automountServiceAccountToken") is not False:
            yield f"{name}: mounts a service-account token"
        if spec.get("enableServiceLinks") is not False:
            yield f"{name}: takes variables of neighbouring Services"
        if any(spec.get(key) for key in ("hostNetwork", "hostPID", "hostIPC")):
            yield f"{name}: shares a namespace of the node"
        security = spec.get("securityContext", {})
        if security.get("runAsNonRoot") is not True or not security.get("runAsUser"):
            yield f"{name}: may run as root"
        if security.get("seccompProfile", {}).get("type") != "RuntimeDefault":
            yield f"{name}: no seccomp profile"
        for container in spec.get("initContainers", []) + spec["containers"]:
            yield from container_is_fenced(f"{name}/{container['name']}", container)
        for volume in spec.get("volumes", []):
            kinds = set(volume) - {"name"}
            if not kinds <= {"emptyDir", "configMap", "secret"}:
                yield f"{name}: volume {volume['name']} is {kinds}"
            if "emptyDir" in kinds and "sizeLimit" not in volume["emptyDir"]:
                yield f"{name}: volume {volume['name']} has no bound"


def container_is_fenced(name, container):
    security = container.get("securityContext", {})
    if security.get("allowPrivilegeEscalation") is not False:
        yield f"{name}: may gain privileges"
    if security.get("privileged"):
        yield f"{name}: privileged"
    if security.get("readOnlyRootFilesystem") is not True:
        yield f"{name}: writable root"
    if security.get("capabilities") != {"drop": ["ALL"]}:
        yield f"{name}: keeps capabilities"
    for kind in ("requests", "limits"):
        if not {"cpu", "memory"} <= set(container.get("resources", {}).get(kind, {})):
            yield f"{name}: {kind} without cpu or memory"
    if re.search(r":latest$|^[^:@]+$", container["image"]):
        yield f"{name}: image {container['image']} moves"


def services_can_be_watched(objects, values):
    for name, labels, spec in pods(objects):
        if component(labels) not in SERVICES:
            continue
        if spec.get("terminationGracePeriodSeconds", 0) <= values["drainSeconds"]:
            yield f"{name}: killed before it has drained"
        container = spec["containers"][0]
        ports = {port["name"] for port in container["ports"]}
        for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
            if container.get(probe, {}).get("httpGet", {}).get("port") not in ports:
                yield f"{name}: no {probe}"


def references_hold(objects, _values):
    named = {(thing["kind"], thing["metadata"]["name"]) for thing in objects}
    if len(named) != len(objects):
        yield "two objects of one kind have one name"
    for thing in objects:
        if not thing["metadata"].get("namespace"):
            yield f"{thing['kind']} {thing['metadata']['name']}: in no namespace"
    claimed = {
        thing["metadata"]["name"]: {claim["metadata"]["name"] for claim in thing["spec"].get("volumeClaimTemplates", [])}
        for thing in of_kind(objects, "StatefulSet")
    }
    for thing in of_kind(objects, "StatefulSet"):
        if ("Service", thing["spec"]["serviceName"]) not in named:
            yield f"StatefulSet {thing['metadata']['name']}: no Service {thing['spec']['serviceName']}"
    for name, _, spec in pods(objects):
        if ("ServiceAccount", spec["serviceAccountName"]) not in named:
            yield f"{name}: no ServiceAccount {spec['serviceAccountName']}"
        volumes = {volume["name"] for volume in spec.get("volumes", [])}
        for volume in spec.get("volumes", []):
            if "configMap" in volume and ("ConfigMap", volume["configMap"]["name"]) not in named:
                yield f"{name}: no ConfigMap {volume['configMap']['name']}"
        claims = claimed.get(name, set())
        mounted = {mount["name"] for container in spec["containers"] for mount in container.get("volumeMounts", [])}
        if mounted != volumes | claims:
            yield f"{name}: mounts {sorted(mounted)}, has {sorted(volumes | claims)}"
    for service in of_kind(objects, "Service"):
        selector = {"matchLabels": service["spec"]["selector"]}
        chosen = [spec for _, labels, spec in pods(objects) if selects(selector, labels)]
        if len(chosen) != 1:
            yield f"Service {service['metadata']['name']}: selects {len(chosen)} kinds of pods"
            continue
        open_ports = {port["name"] for port in chosen[0]["containers"][0]["ports"]}
        for port in service["spec"]["ports"]:
            if port["targetPort"] not in open_ports:
                yield f"Service {service['metadata']['name']}: no port {port['targetPort']}"
    for kind in ("PodDisruptionBudget", "Deployment", "StatefulSet"):
        for thing in of_kind(objects, kind):
            if sum(selects(thing["spec"]["selector"], labels) for _, labels, _ in pods(objects)) != 1:
                yield f"{kind} {thing['metadata']['name']}: selects other pods than its own"


def secrets_stay_outside(objects, _values):
    for thing in of_kind(objects, "Secret"):
        yield f"renders Secret {thing['metadata']['name']}"
    for name, labels, spec in pods(objects):
        for container in spec["containers"]:
            for variable in container.get("env", []):
                if "value" in variable:
                    yield f"{name}: variable {variable['name']} has a literal value"
        if component(labels) != "broker":
            for mount in spec["containers"][0].get("volumeMounts", []):
                if "credentials" in mount["mountPath"]:
                    yield f"{name}: mounts a credential"


def configuration_parses(objects, _values):
    for thing in of_kind(objects, "ConfigMap"):
        for key, text in thing["data"].items():
            if key.endswith(".toml"):
                try:
                    tomllib.loads(text)
                except tomllib.TOMLDecodeError as error:
                    yield f"ConfigMap {thing['metadata']['name']}, {key}: {error}"


def every_pod_is_under_policy(objects, values):
    policies = of_kind(objects, "NetworkPolicy")
    if not values["networkPolicy"]["enabled"]:
        if policies:
            yield "network policies although they are off"
        return
    closed = [policy["spec"] for policy in policies if not {"ingress", "egress"} & set(policy["spec"])]
    for name, labels, _ in pods(objects):
        for direction in ("Ingress", "Egress"):
            if not any(direction in spec["policyTypes"] and selects(spec["podSelector"], labels) for spec in closed):
                yield f"{name}: {direction} is open by default"


def rules_for(objects, labels, direction):
    """All (peer, port) pairs that the policies open for a pod. A rule without peers or ports is open to all: None."""
    key = "from" if direction == "ingress" else "to"
    for policy in of_kind(objects, "NetworkPolicy"):
        if not selects(policy["spec"]["podSelector"], labels):
            continue
        for rule in policy["spec"].get(direction, []):
            for peer in rule.get(key) or [None]:
                for port in rule.get("ports") or [{"port": None}]:
                    yield peer, port["port"]


def peer_component(peer):
    """The component that a peer selects in the release's own namespace; None for any other peer."""
    if not peer or set(peer) != {"podSelector"}:
        return None
    return component(peer["podSelector"].get("matchLabels", {}))


def only_the_drawn_ways_are_open(objects, values):
    if not values["networkPolicy"]["enabled"]:
        return
    egress = {7431} if values["broker"]["egress"]["enabled"] else set()
    admin = {"runner": 7411, "sandbox": 7421, "broker": 7432}
    may_call = {
        "runner": {("sandbox", 7420), ("broker", 7430)},
        "sandbox": {("broker", 7430)} | {("broker", port) for port in egress},
        "broker": set(),
        "test": set(admin.items()),
    }
    callers = {
        "runner": set(),
        "sandbox": {("runner", 7420)},
        "broker": {("runner", 7430), ("sandbox", 7430)} | {("sandbox", port) for port in egress},
        "test": set(),
    }
    extra = [peer for rule in values["networkPolicy"]["runnerExtraEgress"] for peer in rule["to"]]
    for name, labels, _ in pods(objects):
        me = component(labels)
        out = [(peer, port) for peer, port in rules_for(objects, labels, "egress")]
        calls = {(peer_component(peer), port) for peer, port in out if peer_component(peer)}
        if calls != may_call[me]:
            yield f"{name}: may call {sorted(calls)}, should be {sorted(may_call[me])}"
        if not all((peer, 53) in out for peer in values["networkPolicy"]["dns"]):
            yield f"{name}: may not resolve names"
        for peer, port in out:
            known = peer_component(peer) or (peer in values["networkPolicy"]["dns"] and port == 53)
            known = known or (me == "runner" and peer in extra)
            known = known or (me == "broker" and peer and set(peer) == {"ipBlock"})
            if not known:
                yield f"{name}: may call {peer} port {port}"
        into = [(peer, port) for peer, port in rules_for(objects, labels, "ingress")]
        called = {(peer_component(peer), port) for peer, port in into if peer_component(peer) in SERVICES}
        if called != callers[me]:
            yield f"{name}: called by {sorted(called)}, should be {sorted(callers[me])}"
        for peer, port in into:
            known = peer_component(peer) in SERVICES
            watches = peer_component(peer) == "test" or peer in values["networkPolicy"]["monitoring"]
            known = known or (watches and port == admin.get(me))
            known = known or (me == "runner" and port == 7410 and peer in values["networkPolicy"]["clients"])
            if not known:
                yield f"{name}: called by {peer} on port {port}"


def the_broker_reaches_no_inner_address(objects, values):
    if not values["networkPolicy"]["enabled"]:
        return
    allowed = [ipaddress.ip_network(cidr) for cidr in values["broker"]["policy"]["allowPrivate"]]
    for name, labels, _ in pods(objects):
        if component(labels) != "broker":
            continue
        blocks = [peer["ipBlock"] for peer, _ in rules_for(objects, labels, "egress") if peer and "ipBlock" in peer]
        for address in map(ipaddress.ip_address, PRIVATE_OR_METADATA):
            for block in blocks:
                cidr = ipaddress.ip_network(block["cidr"])
                excepted = any(address in ipaddress.ip_network(closed) for closed in block.get("except", []))
                if address in cidr and not excepted and cidr not in allowed:
                    yield f"{name}: may reach {address}"
        for block in blocks:
            cidr = ipaddress.ip_network(block["cidr"])
            for closed in block.get("except", []):
                if not ipaddress.ip_network(closed).subnet_of(cidr):
                    yield f"{name}: {closed} is not inside {cidr}"


def certificates_carry_roles(objects, values):
    wanted = values["tls"]["enabled"] and values["tls"]["certManager"]["enabled"]
    leaves = [thing for thing in of_kind(objects, "Certificate") if not thing["spec"].get("isCA")]
    uris = {uri for thing in leaves for uri in thing["spec"]["uris"]}
    expected = {f"spiffe://{values['trustDomain']}/{service}" for service in SERVICES} if wanted else set()
    if uris != expected:
        yield f"certificates for {sorted(uris)}, should be {sorted(expected)}"
    mounted = {
        volume["secret"]["secretName"]
        for _, _, spec in pods(objects)
        for volume in spec.get("volumes", [])
        if volume["name"] == "tls"
    }
    if wanted and {thing["spec"]["secretName"] for thing in leaves} != mounted:
        yield f"the pods mount {sorted(mounted)}, which are not what the certificates fill"
    if len(mounted) != (3 if values["tls"]["enabled"] else 0):
        yield f"certificates mounted: {sorted(mounted)}"
    for _, _, spec in pods(objects):
        for container in spec["containers"]:
            door = container["name"] == "broker" and values["broker"]["egress"]["enabled"]
            if "--insecure-listen" in container.get("args", []) and values["tls"]["enabled"] and not door:
                yield f"{container['name']}: listens insecurely although TLS is on"


RULES = (
    pods_are_fenced,
    services_can_be_watched,
    references_hold,
    secrets_stay_outside,
    configuration_parses,
    every_pod_is_under_policy,
    only_the_drawn_ways_are_open,
    the_broker_reaches_no_inner_address,
    certificates_carry_roles,
)
