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

{{- define "csa-daemon.image" -}}
image: "{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}"
imagePullPolicy: {{ .Values.image.pullPolicy }}
{{- end }}

{{- define "csa-daemon.confined" -}}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{- define "csa-daemon.controller" -}}
{{ include "csa-daemon.image" . }}
resources:
  {{- toYaml .Values.controller.resources | nindent 2 }}
{{ include "csa-daemon.confined" . }}
volumeMounts:
  - {name: config, mountPath: /etc/csa-daemon, readOnly: true}
  - {name: secrets, mountPath: /run/secrets/csa-daemon, readOnly: true}
  - {name: files, mountPath: /run/csa-daemon}
  - {name: account, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}
{{- end }}
