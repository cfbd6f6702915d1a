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
{{- $from := printf "file:/var/run/areev/credentials/%s/%s" $name $credential.secret.key -}}
{{- $_ := set $credentials $name (merge (dict "from" $from) (omit $credential "secret")) -}}
{{- end -}}
{{ toToml (dict "policy" $policy "credentials" $credentials "grants" .Values.broker.grants) }}
{{- end }}
