{{/* Names, labels, addresses, images. */}}

{{- define "areev.fullname" -}}
{{- default .Release.Name .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* areev.name (list root "runner"): the name of a service's objects. */}}
{{- define "areev.name" -}}
{{- printf "%s-%s" (include "areev.fullname" (index . 0)) (index . 1) -}}
{{- end }}

{{/* areev.host (list root "runner"): the name under which a service is reached in the cluster. */}}
{{- define "areev.host" -}}
{{- $root := index . 0 -}}
{{- printf "%s.%s.svc.%s" (include "areev.name" .) $root.Release.Namespace $root.Values.clusterDomain -}}
{{- end }}

{{- define "areev.tlsSecret" -}}
{{- $root := index . 0 -}}
{{- default (printf "%s-tls" (include "areev.name" .)) (index $root.Values.tls.secretNames (index . 1)) -}}
{{- end }}

{{/* areev.selector (list root "runner"): what never changes about a service's pods. */}}
{{- define "areev.selector" -}}
{{ include "areev.releaseSelector" (index . 0) }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "areev.releaseSelector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "areev.labels" -}}
{{- $root := index . 0 -}}
{{ include "areev.selector" . }}
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: {{ $root.Chart.Name }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $root.Chart.Name $root.Chart.Version | replace "+" "_" }}
{{- end }}

{{/* areev.metadata (list root "runner-headless" "runner"): name, namespace and labels of an object; labels come last. */}}
{{- define "areev.metadata" -}}
{{- $root := index . 0 -}}
name: {{ include "areev.name" (list $root (index . 1)) }}
namespace: {{ $root.Release.Namespace }}
labels:
  {{- include "areev.labels" (list $root (index . 2)) | nindent 2 }}
{{- end }}

{{/* areev.image (list root image): a digest is stronger than a tag. */}}
{{- define "areev.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $image.repository -}}
{{- if $image.digest }}@{{ $image.digest }}{{ else }}:{{ default $root.Chart.AppVersion $image.tag }}{{ end -}}
{{- end }}

{{/* The ports of each service, in one place. */}}
{{- define "areev.ports" -}}
runner: {grpc: 7410, admin: 7411}
sandbox: {grpc: 7420, admin: 7421}
broker: {grpc: 7430, egress: 7431, admin: 7432}
{{- end }}

{{/* areev.brokers root: the host of each replica of the broker. A token is spent where it was minted, so callers know them all. */}}
{{- define "areev.brokers" -}}
{{- $name := include "areev.name" (list . "broker") -}}
{{- $host := include "areev.host" (list . "broker") -}}
{{- if gt (int .Values.broker.replicas) 1 }}
{{- range $index := until (int .Values.broker.replicas) }}
- {{ $name }}-{{ $index }}.{{ $host }}
{{- end }}
{{- else }}
- {{ $host }}
{{- end }}
{{- end }}

{{/* areev.url (list root "broker"): the gRPC URL of a service. */}}
{{- define "areev.url" -}}
{{- $ports := include "areev.ports" (index . 0) | fromYaml -}}
{{- $scheme := ternary "https" "http" (index . 0).Values.tls.enabled -}}
{{- printf "%s://%s:%v" $scheme (include "areev.host" .) (index $ports (index . 1)).grpc -}}
{{- end }}
