{{/* The image of a part: (dict "root" $ "part" "operator"). */}}
{{- define "trireme.image" -}}
{{- $images := .root.Values.images -}}
{{- $image := index $images .part -}}
{{- $name := printf "%s/%s" (trimSuffix "/" $images.registry) $image.name -}}
{{- if $image.digest -}}
{{ $name }}@{{ $image.digest }}
{{- else -}}
{{ $name }}:{{ $images.tag | default .root.Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "trireme.isOpenShift" -}}
{{- if or (eq .Values.platform "openshift") (and (eq .Values.platform "auto") (.Capabilities.APIVersions.Has "security.openshift.io/v1")) -}}
true
{{- end -}}
{{- end -}}

{{/* Labels of a part's pods, and selectors: (dict "part" "operator"). Selectors of
Deployments cannot be changed, so these labels must stay the same in all versions. */}}
{{- define "trireme.selector" -}}
{app.kubernetes.io/name: trireme, app.kubernetes.io/component: {{ .part }}}
{{- end -}}

{{/* Labels of all objects. */}}
{{- define "trireme.labels" -}}
app.kubernetes.io/part-of: trireme
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/instance: {{ .Release.Name }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{/* How pods are scheduled, from the values of a part. */}}
{{- define "trireme.scheduling" -}}
{{- with .priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations: {{ toYaml . | nindent 0 }}
{{- end }}
{{- with .affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{/* The security context of all pods. OpenShift assigns the user. */}}
{{- define "trireme.podSecurityContext" -}}
runAsNonRoot: true
{{- if not (include "trireme.isOpenShift" .) }}
runAsUser: 65532
{{- end }}
seccompProfile: {type: RuntimeDefault}
{{- end -}}

{{- define "trireme.containerSecurityContext" -}}
{allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}
{{- end -}}

{{- define "trireme.pullSecrets" -}}
{{- with .Values.images.pullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- end -}}

{{/* Go collects garbage before a pod reaches its memory limit: 90 % of it, in bytes. */}}
{{- define "trireme.memoryLimit" -}}
{{- $limit := dig "limits" "memory" "" (. | default dict) | toString -}}
{{- if regexMatch "^[0-9]+(Mi|Gi)$" $limit -}}
{{- $number := regexFind "^[0-9]+" $limit | int64 -}}
{{- $mebibytes := ternary (mul $number 1024) $number (hasSuffix "Gi" $limit) -}}
- {name: GOMEMLIMIT, value: {{ div (mul $mebibytes 9) 10 }}MiB}
{{- end -}}
{{- end -}}

{{/* The operator's configuration: what follows from other values, then operator.config. */}}
{{- define "trireme.operatorConfig" -}}
{{- $config := dict "apiVersion" "trireme.kubeflow.org/v1alpha1" "kind" "OperatorConfiguration" -}}
{{- $_ := set $config "agent" (dict "image" (include "trireme.image" (dict "root" $ "part" "agent"))) -}}
{{- with .Values.images.pullSecrets }}{{ $_ := set $config.agent "pullSecrets" . }}{{ end -}}
{{- $_ := set $config "initializer" (dict "image" (include "trireme.image" (dict "root" $ "part" "initializer"))) -}}
{{- if include "trireme.isOpenShift" . -}}
{{- $_ := set $config "server" (dict "manageCertificate" false) -}}
{{- else -}}
{{- $_ := set $config "defaults" (dict "runAsUser" 1000) -}}
{{- end -}}
{{- if eq .Values.certificates.issuer "cert-manager" -}}
{{- $_ := set $config "webhook" (dict "manageCertificates" false "certificateDirectory" "/run/trireme/webhook") -}}
{{- end -}}
{{- if ne .Values.mpiJobs.manage "all" -}}
{{- $_ := set $config "mpiJobs" (dict "manage" (title .Values.mpiJobs.manage)) -}}
{{- end -}}
{{- if not .Values.server.enabled -}}
{{- $_ := set $config "server" (dict "manageCertificate" false) -}}
{{- end -}}
{{- mustMergeOverwrite $config (deepCopy .Values.operator.config) | toYaml -}}
{{- end -}}

{{/* The port for reports of jobs; 0 if it is disabled. */}}
{{- define "trireme.reportsPort" -}}
{{- dig "reports" "port" 9444 .Values.operator.config | int -}}
{{- end -}}

{{/* Conditions of webhooks for jobs. MPIJobs of mpi-operator are not sent to the operator
(internal/engine/job/share.go), so they do not depend on it. A stored job is sent if it
is ours before or after the change. */}}
{{- define "trireme.jobConditions" -}}
[{name: not-being-deleted, expression: "!has(object.metadata.deletionTimestamp)"}{{ if ne .Values.mpiJobs.manage "all" }}, {name: not-of-mpi-operator, expression: {{ include "trireme.isOurs" . | replace "\n" " " | quote }}}{{ end }}]
{{- end -}}

{{- define "trireme.deletionConditions" -}}
{{- if ne .Values.mpiJobs.manage "all" }}
  matchConditions: [{name: not-of-mpi-operator, expression: {{ include "trireme.isOurs" . | replace "\n" " " | quote }}}]
{{- end }}
{{- end -}}

{{- define "trireme.isOurs" -}}
request.resource.resource != 'mpijobs' || (request.operation == 'CREATE'
? object.?spec.?runPolicy.?managedBy.orValue('') in [{{ if eq .Values.mpiJobs.manage "new" }}'', {{ end }}'training.kubeflow.org/trireme']
: oldObject.?spec.?runPolicy.?managedBy.orValue('') == 'training.kubeflow.org/trireme'
|| (oldObject.?spec.?runPolicy.?managedBy.orValue('') in ['', 'kubeflow.org/mpi-operator'] && oldObject.?status.?phase.orValue('') != '')
|| (request.operation == 'UPDATE' && object.?spec.?runPolicy.?managedBy.orValue('') == 'training.kubeflow.org/trireme'))
{{- end -}}
