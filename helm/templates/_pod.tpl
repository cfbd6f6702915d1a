{{/* What every pod has, and what fences it. */}}

{{- define "areev.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{- define "areev.containerSecurity" -}}
allowPrivilegeEscalation: false
privileged: false
readOnlyRootFilesystem: true
runAsNonRoot: true
capabilities:
  drop: [ALL]
seccompProfile:
  type: RuntimeDefault
{{- end }}

{{/* areev.podMetadata (list root "runner") */}}
{{- define "areev.podMetadata" -}}
{{- $root := index . 0 -}}
{{- $service := index . 1 -}}
{{- $values := index $root.Values $service -}}
labels:
  {{- include "areev.labels" . | nindent 2 }}
  {{- with $values.podLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- /* The broker takes its file up while it runs: a restart would end the tokens of effects in flight. */}}
{{- $config := ne $service "broker" }}
{{- if or $config $values.podAnnotations }}
annotations:
  {{- if $config }}
  checksum/config: {{ include (printf "areev.config.%s" $service) $root | sha256sum }}
  {{- end }}
  {{- with $values.podAnnotations }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end }}

{{/* areev.podSpec (list root "runner"): the pod's own settings. */}}
{{- define "areev.podSpec" -}}
{{- $root := index . 0 -}}
{{- $service := index . 1 -}}
{{- $values := index $root.Values $service -}}
serviceAccountName: {{ include "areev.name" . }}
automountServiceAccountToken: false
# Variables of neighbouring Services would look like settings.
enableServiceLinks: false
{{- /* Before SIGTERM 5 s for the endpoints to forget the pod, after the drain 10 s to close what is open. */}}
terminationGracePeriodSeconds: {{ add $root.Values.drainSeconds 15 }}
securityContext:
  {{- include "areev.podSecurity" $root | nindent 2 }}
{{- with $root.Values.image.pullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . }}
  {{- end }}
{{- end }}
# Full names are asked for as they are: no search of the cluster's domains for names of the outside world.
dnsConfig:
  options:
    - name: ndots
      value: "1"
topologySpreadConstraints:
  {{- range list "kubernetes.io/hostname" "topology.kubernetes.io/zone" }}
  - maxSkew: 1
    topologyKey: {{ . }}
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "areev.selector" (list $root $service) | nindent 8 }}
  {{- end }}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* areev.container (list root "runner"): all of the container but volumeMounts. */}}
{{- define "areev.container" -}}
{{- $root := index . 0 -}}
{{- $service := index . 1 -}}
{{- $values := index $root.Values $service -}}
{{- $ports := index (include "areev.ports" $root | fromYaml) $service -}}
name: {{ $service }}
image: {{ with $root.Values.image.registry }}{{ trimSuffix "/" . }}/{{ end }}{{ include "areev.image" (list $root $values.image) }}
imagePullPolicy: {{ $root.Values.image.pullPolicy }}
args:
  {{- include "areev.flags" . | nindent 2 }}
{{- if eq $service "broker" }}
env:
  - name: POD_NAME
    valueFrom:
      fieldRef: {apiVersion: v1, fieldPath: metadata.name}
{{- end }}
ports:
  {{- range $name := keys $ports | sortAlpha }}
  {{- if or (ne $name "egress") $root.Values.broker.egress.enabled }}
  - name: {{ $name }}
    containerPort: {{ index $ports $name }}
    protocol: TCP
  {{- end }}
  {{- end }}
# By HTTP on the admin port: with mutual TLS the kubelet has no certificate for a gRPC probe.
startupProbe:
  httpGet: {path: /livez, port: admin}
  periodSeconds: 2
  failureThreshold: 150
livenessProbe:
  httpGet: {path: /livez, port: admin}
  periodSeconds: 10
  timeoutSeconds: 3
readinessProbe:
  httpGet: {path: /readyz, port: admin}
  periodSeconds: 5
  timeoutSeconds: 3
lifecycle:
  preStop:
    sleep:
      seconds: 5
securityContext:
  {{- include "areev.containerSecurity" $root | nindent 2 }}
resources:
  {{- toYaml $values.resources | nindent 2 }}
{{- end }}

{{/* areev.mounts (list root "runner"): what every service mounts. */}}
{{- define "areev.mounts" -}}
{{- $root := index . 0 -}}
{{- $service := index . 1 -}}
- name: tmp
  mountPath: /tmp
{{- if $root.Values.tls.enabled }}
- name: tls
  mountPath: /var/run/areev/tls
  readOnly: true
{{- end }}
{{- if or (eq $service "broker") (index $root.Values $service).config }}
- name: config
  mountPath: /etc/areev/{{ $service }}
  readOnly: true
{{- end }}
{{- end }}

{{/* areev.volumes (list root "runner" tmpSize) */}}
{{- define "areev.volumes" -}}
{{- $root := index . 0 -}}
{{- $service := index . 1 -}}
- name: tmp
  emptyDir:
    sizeLimit: {{ index . 2 }}
{{- if $root.Values.tls.enabled }}
- name: tls
  secret:
    secretName: {{ include "areev.tlsSecret" . }}
    defaultMode: 0440
{{- end }}
{{- if or (eq $service "broker") (index $root.Values $service).config }}
- name: config
  configMap:
    name: {{ include "areev.name" . }}
{{- end }}
{{- end }}
