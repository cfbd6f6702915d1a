{{/* The services' TOML files. */}}

{{- define "areev.config.runner" -}}
{{ .Values.runner.config }}
{{- end }}

{{- define "areev.config.sandbox" -}}
{{ .Values.sandbox.config }}
{{- end }}

{{- define "areev.config.broker" -}}
{{- $policy := dict "allow_hosts" .Values.broker.policy.allowHosts "allow_private" .Values.broker.policy.allowPrivate -}}
{{- if .Values.broker.policy.unrestricted }}{{ $_ := set $policy "unrestricted" true }}{{ end -}}
{{- $credentials := dict -}}
{{- range $name, $credential := .Values.broker.credentials -}}
{{- $table := omit $credential "secret" -}}
{{- with $credential.secret -}}
{{- $place := printf "file:/var/run/areev/credentials/%s" $name -}}
{{- $_ := set $table "from" (printf "%s/%s" $place .key) -}}
{{- if .clientSecretKey }}{{ $_ := set $table "client_secret_from" (printf "%s/%s" $place .clientSecretKey) }}{{ end -}}
{{- if .sessionTokenKey }}{{ $_ := set $table "session_token_from" (printf "%s/%s" $place .sessionTokenKey) }}{{ end -}}
{{- end -}}
{{- $_ := set $credentials $name $table -}}
{{- end -}}
{{- $grants := dict -}}
{{- range $tool, $grant := .Values.broker.grants -}}
{{- $table := omit $grant "artifacts" -}}
{{- with $grant.artifacts -}}
{{- /* Numbers of values are floats, and bytes are whole. */ -}}
{{- $ceilings := dict -}}
{{- range $name, $bytes := . }}{{ $_ := set $ceilings $name (int64 $bytes) }}{{ end -}}
{{- $_ := set $table "artifacts" $ceilings -}}
{{- end -}}
{{- $_ := set $grants $tool $table -}}
{{- end -}}
{{- $document := dict "policy" $policy "credentials" $credentials "grants" $grants -}}
{{- with .Values.broker.vault -}}
{{- if .address -}}
{{- $vault := dict "address" .address "token" (printf "file:/var/run/areev/vault/%s" .secret.key) -}}
{{- if .namespace }}{{ $_ := set $vault "namespace" .namespace }}{{ end -}}
{{- $_ := set $document "vault" $vault -}}
{{- end -}}
{{- end -}}
{{ toToml $document }}
{{- end }}
