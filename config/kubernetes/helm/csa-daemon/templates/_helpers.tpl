{{- define "csa-daemon.selector" -}}
app.kubernetes.io/name: csa-daemon
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "csa-daemon.labels" -}}
{{ include "csa-daemon.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}
