{{- define "calve.labels" -}}
app.kubernetes.io/name: calve
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "calve.security" -}}
allowPrivilegeEscalation: false
capabilities: {drop: [ALL]}
runAsNonRoot: true
runAsUser: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "calve.mounts" -}}
- {name: config, mountPath: /etc/calve, readOnly: true}
- {name: secret, mountPath: /run/secrets/calve, readOnly: true}
- {name: state, mountPath: /var/lib/calve}
- {name: scratch, mountPath: /tmp}
{{- end }}

{{- define "calve.volumes" -}}
- {name: config, configMap: {name: {{ .Release.Name }}-calve}}
- {name: secret, secret: {secretName: {{ .Values.secret }}}}
- {name: state, emptyDir: {}}
{{- end }}

{{- define "calve.environmentFrom" -}}
{{- with .Values.environmentFrom }}
envFrom:
  {{- range . }}
  - {secretRef: {name: {{ . }}}}
  {{- end }}
{{- end }}
{{- end }}
