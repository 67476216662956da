{{/* Labels of everything the chart makes. */}}
{{- define "kai.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* "true" where the cluster is OpenShift, else empty. */}}
{{- define "kai.openshift" -}}
{{- if or .Values.openshift (lookup "apiextensions.k8s.io/v1" "CustomResourceDefinition" "" "clusterversions.config.openshift.io") -}}
true
{{- end -}}
{{- end }}

{{/* How pods share GPUs; empty: as the deprecated global.gpuSharing says. */}}
{{- define "kai.gpuSharingMode" -}}
{{- $mode := .Values.global.gpuSharingMode | default "" -}}
{{- if .Values.global.nvFractions.set -}}
{{- if not (has $mode (list "" "NvFractions")) -}}
{{- fail (printf "global.nvFractions.set=true requires global.gpuSharingMode to be empty or \"NvFractions\", got %q" $mode) -}}
{{- end -}}
NvFractions
{{- else -}}
{{- $mode -}}
{{- end -}}
{{- end }}

{{/* The tag of images that do not name one. */}}
{{- define "kai.tag" -}}
{{- .Values.global.tag | default .Chart.AppVersion -}}
{{- end }}

{{/* An image of the chart's own pods: (list root image). KAI's names of them stand for our one image. */}}
{{- define "kai.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $name := $image.name | default "" -}}
{{- if has $name (list "" "operator" "crd-upgrader" "helm-hooks") -}}
{{- $name = $root.Values.global.imageName -}}
{{- end -}}
{{- printf "%s/%s:%s" (trimSuffix "/" ($image.registry | default $root.Values.global.registry)) $name ($image.tag | default (include "kai.tag" $root)) -}}
{{- end }}

{{/* Where and as whom the chart's own pods run. */}}
{{- define "kai.pod" -}}
{{- $global := .Values.global -}}
securityContext:
  {{- if $global.podSecurityContext }}
  {{- toYaml $global.podSecurityContext | nindent 2 }}
  {{- else }}
  runAsNonRoot: true
  seccompProfile:
    type: RuntimeDefault
  {{- end }}
{{- with $global.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $global.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $global.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $global.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $global.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The security context of the chart's own containers. */}}
{{- define "kai.containerSecurity" -}}
{{- if .Values.global.securityContext -}}
{{- toYaml .Values.global.securityContext -}}
{{- else -}}
allowPrivilegeEscalation: false
capabilities:
  drop: [ALL]
runAsNonRoot: true
{{- if not (include "kai.openshift" .) }}
runAsUser: 10000
{{- end }}
seccompProfile:
  type: RuntimeDefault
{{- end -}}
{{- end }}

{{/* "true" where an object may be rendered: (list root apiVersion kind namespace name): there is none, or it is ours. */}}
{{- define "kai.ours" -}}
{{- $root := index . 0 -}}
{{- $live := lookup (index . 1) (index . 2) (index . 3) (index . 4) -}}
{{- if or (not $live) (eq (dig "metadata" "annotations" "meta.helm.sh/release-name" "" $live) $root.Release.Name) -}}
true
{{- end -}}
{{- end }}

{{/* An image in Config: (list root image). What is not said is the operator's to know. */}}
{{- define "kai.config.image" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- with $image.name }}
name: {{ . }}
{{- end }}
{{- with $image.tag }}
tag: {{ . | quote }}
{{- end }}
pullPolicy: {{ $image.pullPolicy | default $root.Values.global.imagePullPolicy }}
{{- end }}

{{/* How a component is deployed: (list root values). Whether it is, says the caller. */}}
{{- define "kai.config.service" -}}
{{- $values := index . 1 -}}
image:
  {{- include "kai.config.image" (list (index . 0) $values.image) | trim | nindent 2 }}
{{- with $values.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with $values.podDisruptionBudget }}
podDisruptionBudget:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The runtime class of reservation pods: either name of the value, nvidia where neither is given, else as given. */}}
{{- define "kai.reservationRuntimeClass" -}}
{{- $binder := .Values.binder -}}
{{- $reservation := $binder.resourceReservation | default dict -}}
{{- if hasKey $reservation "runtimeClassName" -}}
{{- $reservation.runtimeClassName | default "" -}}
{{- else if hasKey $binder "runtimeClassName" -}}
{{- $binder.runtimeClassName | default "" -}}
{{- else -}}
nvidia
{{- end -}}
{{- end }}

{{/* The service account of scaling pods. */}}
{{- define "kai.scalingAccount" -}}
kai-scale-adjust
{{- end }}

{{/* Annotations of a hook before installation and upgrade, of the given weight. */}}
{{- define "kai.hook" -}}
helm.sh/hook: pre-install,pre-upgrade
helm.sh/hook-weight: {{ . | quote }}
helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
