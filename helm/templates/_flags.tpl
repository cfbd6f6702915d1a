{{/* The command lines of the three services: every flag that the chart gives is in this file. */}}

{{/* areev.flags (list root "runner") */}}
{{- define "areev.flags" -}}
{{- $root := index . 0 -}}
{{- $service := index . 1 -}}
{{- $values := index $root.Values $service -}}
{{- $ports := index (include "areev.ports" $root | fromYaml) $service -}}
- --listen={{ $root.Values.bindAddress }}:{{ $ports.grpc }}
- --admin-listen={{ $root.Values.bindAddress }}:{{ $ports.admin }}
- --trust-domain={{ $root.Values.trustDomain }}
- --drain={{ $root.Values.drainSeconds }}s
- --log-format=json
- --log={{ $root.Values.log }}
{{- if $root.Values.tls.enabled }}
- --tls-cert=/var/run/areev/tls/tls.crt
- --tls-key=/var/run/areev/tls/tls.key
- --tls-client-ca=/var/run/areev/tls/ca.crt
{{- end }}
{{- /* Said for gRPC where TLS is off, and for the broker's HTTP door, which has none. */}}
{{- if or (not $root.Values.tls.enabled) (and (eq $service "broker") $root.Values.broker.egress.enabled) }}
- --insecure-listen
{{- end }}
{{- if or (eq $service "broker") $values.config }}
- --config=/etc/areev/{{ $service }}/{{ $service }}.toml
{{- end }}
{{ include (printf "areev.flags.%s" $service) $root }}
{{- range $values.extraArgs }}
- {{ . | quote }}
{{- end }}
{{- end }}

{{- define "areev.flags.runner" -}}
- --data-dir=/var/lib/areev
- --allow-executor-file=/etc/areev/pins/executors
- --sandbox-url={{ include "areev.url" (list . "sandbox") }}
{{- include "areev.flags.brokers" . }}
{{- if .Values.runner.tokens.secretName }}
- --tokens-file=/var/run/areev/tokens/{{ .Values.runner.tokens.key }}
{{- end }}
{{- with .Values.runner.toolUrl }}
- --tool-url={{ . }}
{{- end }}
{{- with .Values.runner.model }}
{{- if .url }}
- --model-url={{ .url }}
- --model={{ required "runner.model.name: a model at runner.model.url has a name" .name }}
{{- with .credential }}
- --model-credential={{ . }}
{{- end }}
{{- if or .inputPrice .outputPrice }}
- --model-input-price={{ int64 .inputPrice }}
- --model-output-price={{ int64 .outputPrice }}
{{- end }}
{{- end }}
{{- end }}
{{- if .Values.runner.receiptKey.secretName }}
- --receipt-key=/var/run/areev/receipt/{{ .Values.runner.receiptKey.key }}
{{- end }}
{{- end }}

{{- define "areev.flags.brokers" -}}
{{- $root := . }}
{{- range include "areev.brokers" . | fromYamlArray }}
- --broker-url={{ ternary "https" "http" $root.Values.tls.enabled }}://{{ . }}:{{ (include "areev.ports" $root | fromYaml).broker.grpc }}
{{- end }}
{{- end }}

{{- define "areev.flags.sandbox" -}}
{{- include "areev.flags.brokers" . | trim }}
- --cache-dir=/var/cache/areev
- --cache-bytes={{ .Values.sandbox.cache.bytes | int64 }}
{{- if .Values.sandbox.allowNative }}
- --allow-native
{{- end }}
{{- end }}

{{- define "areev.flags.broker" -}}
{{- $port := (include "areev.ports" . | fromYaml).broker.egress -}}
{{- if .Values.broker.egress.enabled -}}
- --egress-listen={{ .Values.bindAddress }}:{{ $port }}
- --egress-url=http://{{ if gt (int .Values.broker.replicas) 1 }}$(POD_NAME).{{ end }}{{ include "areev.host" (list . "broker") }}:{{ $port }}
{{- else -}}
- --egress-listen=127.0.0.1:{{ $port }}
{{- end }}
- --replica=$(POD_NAME)
{{- if .Values.broker.tokenKeys.secretName }}
- --token-keys=/var/run/areev/token-keys
{{- end }}
{{- end }}
