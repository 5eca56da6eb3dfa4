{{/*
What the charts of klutchctl share: they read the kustomizations beside them, so that both ways of
installing give the same objects, and change in these what values say.
*/}}

{{/*
Append the objects of a kustomization to .into.objects, its bases first and each once, then apply its
patches: JSON patches of `add` and `replace`. A dict of root, folder (below manifests/), and into, a
dict of objects (a list) and read (a dict of folders).
*/}}
{{- define "kustomization.read" -}}
{{- $root := .root -}}
{{- $into := .into -}}
{{- $folder := .folder -}}
{{- if not (hasKey $into.read $folder) -}}
  {{- $_ := set $into.read $folder true -}}
  {{- $kustomization := fromYaml (include "kustomization.file" (dict "root" $root "path" (printf "%s/kustomization.yaml" $folder))) -}}
  {{- range $resource := $kustomization.resources -}}
    {{- if hasPrefix "../" $resource -}}
      {{- include "kustomization.read" (dict "root" $root "into" $into "folder" (trimPrefix "../" $resource)) -}}
    {{- else -}}
      {{- include "kustomization.objects" (dict "root" $root "into" $into "path" (printf "%s/%s" $folder $resource)) -}}
    {{- end -}}
  {{- end -}}
  {{- range $patch := $kustomization.patches -}}
    {{- range $object := $into.objects -}}
      {{- if and (eq $object.kind $patch.target.kind) (eq $object.metadata.name $patch.target.name) -}}
        {{- range $operation := fromYamlArray $patch.patch -}}
          {{- include "kustomization.patch" (dict "object" $object "operation" $operation) -}}
        {{- end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* Append the objects of a file to .into.objects. A dict of root, into, path. */}}
{{- define "kustomization.objects" -}}
{{- $into := .into -}}
{{- $path := .path -}}
{{- range $text := splitList "\n---\n" (include "kustomization.file" .) -}}
  {{- $object := fromYaml $text -}}
  {{- if hasKey $object "Error" -}}{{- fail (printf "%s: %s" $path $object.Error) -}}{{- end -}}
  {{- $_ := set $into "objects" (append $into.objects $object) -}}
{{- end -}}
{{- end -}}

{{/* Return the text of a file below manifests/. A dict of root and path. */}}
{{- define "kustomization.file" -}}
{{- $text := .root.Files.Get (printf "manifests/%s" .path) -}}
{{- if not $text -}}{{- fail (printf "the chart lacks manifests/%s" .path) -}}{{- end -}}
{{- $text -}}
{{- end -}}

{{/* Carry out one operation of a JSON patch. A dict of object and operation. */}}
{{- define "kustomization.patch" -}}
{{- $operation := .operation -}}
{{- if not (has $operation.op (list "add" "replace")) -}}{{- fail (printf "no patch of %s here" $operation.op) -}}{{- end -}}
{{- $keys := splitList "/" (trimPrefix "/" $operation.path) -}}
{{- $walk := dict "at" .object "above" (dict) "by" "" -}}
{{- range $key := initial $keys -}}
  {{- $at := $walk.at -}}
  {{- if kindIs "slice" $at -}}
    {{- $_ := set $walk "at" (index $at (atoi $key)) -}}
  {{- else -}}
    {{- $_ := set $walk "above" $at -}}
    {{- $_ := set $walk "by" $key -}}
    {{- $_ := set $walk "at" (index $at $key) -}}
  {{- end -}}
{{- end -}}
{{- if eq (last $keys) "-" -}}
  {{- $_ := set $walk.above $walk.by (append $walk.at $operation.value) -}}
{{- else -}}
  {{- $_ := set $walk.at (last $keys) $operation.value -}}
{{- end -}}
{{- end -}}

{{/*
Write objects, changed as values say. A dict of root, objects, workload (values of the Deployment) and
options (flags of its program, without dashes: null takes one away, true is one without a value).
*/}}
{{- define "kustomization.write" -}}
{{- $root := .root -}}
{{- $values := .root.Values -}}
{{- $workload := .workload -}}
{{- $options := .options -}}
{{- range $object := .objects -}}
{{- $kind := $object.kind -}}
{{- $left := or
      (and (eq $kind "Namespace") (not $values.namespace))
      (and (hasPrefix "ValidatingAdmissionPolicy" $kind) (not $values.admissionPolicies))
      (and (eq $kind "NetworkPolicy") (not $values.networkPolicy.enabled))
      (and (eq $kind "PodDisruptionBudget") (lt (int $workload.replicas) 2)) -}}
{{- if not $left -}}
  {{- if eq $kind "Deployment" -}}
    {{- include "kustomization.deployment" (dict "root" $root "spec" $object.spec "workload" $workload "options" $options) -}}
  {{- else if eq $kind "NetworkPolicy" -}}
    {{- include "kustomization.ports" (dict "spec" $object.spec "ports" $values.networkPolicy.egressPorts) -}}
  {{- else if and (hasKey $values "services") (hasSuffix "-services" $object.metadata.name) (eq $kind "ClusterRole") -}}
    {{- with $values.services -}}{{- $_ := set $object "rules" . -}}{{- end -}}
  {{- else if eq $kind "ServiceAccount" -}}
    {{- with $workload.serviceAccountAnnotations -}}{{- $_ := set $object.metadata "annotations" . -}}{{- end -}}
  {{- end -}}
  {{- /* They hold what outlives the program, such as kubeconfigs and the objects of tenants. */ -}}
  {{- if has $kind (list "Namespace" "CustomResourceDefinition") -}}
    {{- $annotations := default (dict) (index $object.metadata "annotations") -}}
    {{- $_ := set $object.metadata "annotations" (set $annotations "helm.sh/resource-policy" "keep") -}}
  {{- end }}
---
{{ toYaml $object }}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Set options that values do not name, not even as null. A dict of options and presets. */}}
{{- define "kustomization.preset" -}}
{{- range $name, $value := .presets -}}
  {{- if not (hasKey $.options $name) -}}{{- $_ := set $.options $name $value -}}{{- end -}}
{{- end -}}
{{- end -}}

{{/* Fail with a line for each value that is empty. A dict of lists: a value, and what belongs there. */}}
{{- define "kustomization.needs" -}}
{{- $missing := list -}}
{{- range $name, $need := . -}}
  {{- if not (first $need) -}}{{- $missing = append $missing (printf "\n  %s: %s" $name (last $need)) -}}{{- end -}}
{{- end -}}
{{- with $missing -}}{{- fail (printf "the chart needs values for:%s" (join "" .)) -}}{{- end -}}
{{- end -}}

{{/*
Mount Secrets and ConfigMaps by other names; what has the name "" may be missing. A dict of objects, and
of names by those of volumes.
*/}}
{{- define "kustomization.mount" -}}
{{- range $object := .objects -}}
  {{- if eq $object.kind "Deployment" -}}
    {{- range $volume := $object.spec.template.spec.volumes -}}
      {{- if hasKey $.names $volume.name -}}
        {{- $key := ternary "name" "secretName" (hasKey $volume "configMap") -}}
        {{- $source := or $volume.configMap $volume.secret -}}
        {{- $name := index $.names $volume.name -}}
        {{- $_ := set $source (ternary $key "optional" (ne $name "")) (ternary $name true (ne $name "")) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* Change a Deployment as values say. A dict of root, spec, workload, options. */}}
{{- define "kustomization.deployment" -}}
{{- $workload := .workload -}}
{{- $pod := .spec.template.spec -}}
{{- $container := index $pod.containers 0 -}}
{{- $image := .root.Values.image -}}
{{- $_ := set .spec "replicas" (int $workload.replicas) -}}
{{- $version := ternary (printf "@%s" $image.digest) (printf ":%s" (default .root.Chart.AppVersion $image.tag)) (ne (default "" $image.digest) "") -}}
{{- $_ := set $container "image" (printf "%s%s" $image.repository $version) -}}
{{- with $image.pullPolicy -}}{{- $_ := set $container "imagePullPolicy" . -}}{{- end -}}
{{- with $image.pullSecrets -}}{{- $_ := set $pod "imagePullSecrets" . -}}{{- end -}}
{{- with $workload.resources -}}{{- $_ := set $container "resources" . -}}{{- end -}}
{{- with $workload.podSecurityContext -}}{{- $_ := set $pod "securityContext" . -}}{{- end -}}
{{- with $workload.env -}}{{- $_ := set $container "env" (concat (default (list) $container.env) .) -}}{{- end -}}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "topologySpreadConstraints" "priorityClassName" -}}
  {{- with index $workload $key -}}{{- $_ := set $pod $key . -}}{{- end -}}
{{- end -}}
{{- with $workload.podAnnotations -}}{{- $_ := set $.spec.template.metadata "annotations" . -}}{{- end -}}
{{- with $workload.podLabels -}}{{- $_ := set $.spec.template.metadata "labels" (merge $.spec.template.metadata.labels .) -}}{{- end -}}
{{- $arguments := list -}}
{{- $options := .options -}}
{{- range $argument := $container.args -}}
  {{- $name := trimPrefix "--" (first (splitList "=" $argument)) -}}
  {{- if not (hasKey $options $name) -}}{{- $arguments = append $arguments $argument -}}{{- end -}}
{{- end -}}
{{- range $name, $value := $options -}}
  {{- range $one := ternary $value (list $value) (kindIs "slice" $value) -}}
    {{- if and (kindIs "bool" $one) $one -}}
      {{- $arguments = append $arguments (printf "--%s" $name) -}}
    {{- else if not (or (kindIs "invalid" $one) (kindIs "bool" $one)) -}}
      {{- /* Large numbers have an exponent in Go's own form, which no flag takes. */ -}}
      {{- $text := ternary (toJson $one) $one (kindIs "float64" $one) -}}
      {{- $arguments = append $arguments (printf "--%s=%v" $name $text) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $_ := set $container "args" $arguments -}}
{{- end -}}

{{/* Name the ports, beside that of DNS, that a program connects to. A dict of spec and ports. */}}
{{- define "kustomization.ports" -}}
{{- with .ports -}}
  {{- range $rule := $.spec.egress -}}
    {{- $ports := list -}}
    {{- range $rule.ports -}}
      {{- if eq (int .port) 53 -}}{{- $ports = append $ports . -}}{{- end -}}
    {{- end -}}
    {{- range $port := $.ports -}}
      {{- $ports = append $ports (dict "protocol" "TCP" "port" $port) -}}
    {{- end -}}
    {{- $_ := set $rule "ports" $ports -}}
  {{- end -}}
{{- end -}}
{{- end -}}

{{/* Write CRDs, which an upgrade upgrades and an uninstall leaves. A dict of root and paths. */}}
{{- define "kustomization.crds" -}}
{{- $into := dict "objects" (list) -}}
{{- range $path := .paths -}}
  {{- include "kustomization.objects" (dict "root" $.root "into" $into "path" $path) -}}
{{- end -}}
{{- include "kustomization.write" (dict "root" .root "objects" $into.objects "workload" (dict "replicas" 1) "options" (dict)) -}}
{{- end -}}
