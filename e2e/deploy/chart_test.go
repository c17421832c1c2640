// Package deploy reads the Helm chart and the Compose file of deploy/ with the libraries of Helm, Kubernetes and
// Compose. It is a module by itself, because these are large.
package deploy

import (
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"sigs.k8s.io/yaml"
)

const chartFolder = "../../deploy/helm/purser"

// minimal are the values that an operator must give.
func minimal() map[string]any {
	return map[string]any{
		"image":      map[string]any{"repository": "registry.example.com/purser", "tag": "1.2.3"},
		"secretName": "purser",
		"settings":   map[string]any{"base_url": "https://api.example.com"},
	}
}

// render returns the objects of the chart by kind.
func render(values map[string]any) (map[string]string, error) {
	c, err := loader.Load(chartFolder)
	if err != nil {
		return nil, err
	}
	release := chartutil.ReleaseOptions{Name: "purser", Namespace: "default", IsInstall: true}
	all, err := chartutil.ToRenderValues(c, values, release, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(c, all)
	if err != nil {
		return nil, err
	}
	objects := map[string]string{}
	for name, text := range files {
		var head struct{ Kind string }
		if strings.HasSuffix(name, ".yaml") && strings.TrimSpace(text) != "" {
			if err := yaml.Unmarshal([]byte(text), &head); err != nil {
				return nil, err
			}
			objects[head.Kind] = text
		}
	}
	return objects, nil
}

func TestChartHasNoLint(t *testing.T) {
	t.Parallel()
	for _, m := range lint.AllWithKubeVersion(chartFolder, minimal(), "default", nil).Messages {
		if m.Severity >= support.WarningSev {
			t.Error(m)
		}
	}
}

// TestObjectsAreOfKubernetes decodes each object into Kubernetes' own type. A member that the type does not have fails.
func TestObjectsAreOfKubernetes(t *testing.T) {
	t.Parallel()
	values := minimal()
	values["ingress"] = map[string]any{
		"enabled":       true,
		"className":     "nginx",
		"annotations":   map[string]any{"example.com/timeout": "700"},
		"hosts":         []any{"api.example.com", "auth.example.com"},
		"tlsSecretName": "tls",
	}
	values["podAnnotations"] = map[string]any{"example.com/scrape": "true"}
	values["nodeSelector"] = map[string]any{"disk": "fast"}
	values["tolerations"] = []any{map[string]any{"key": "dedicated", "operator": "Exists"}}
	values["imagePullSecrets"] = []any{map[string]any{"name": "registry"}}
	objects, err := render(values)
	if err != nil {
		t.Fatal(err)
	}
	deployment, ingress := &appsv1.Deployment{}, &networkingv1.Ingress{}
	for kind, value := range map[string]any{
		"ConfigMap":           &corev1.ConfigMap{},
		"Deployment":          deployment,
		"Service":             &corev1.Service{},
		"PodDisruptionBudget": &policyv1.PodDisruptionBudget{},
		"Ingress":             ingress,
	} {
		if objects[kind] == "" {
			t.Errorf("there is no %s", kind)
		}
		if err := yaml.UnmarshalStrict([]byte(objects[kind]), value); err != nil {
			t.Errorf("%s: %v\n%s", kind, err, objects[kind])
		}
		delete(objects, kind)
	}
	for kind := range objects {
		t.Errorf("%s is not checked", kind)
	}
	if t.Failed() {
		return
	}
	if len(ingress.Spec.Rules) != 2 || ingress.Spec.TLS[0].Hosts[1] != "auth.example.com" {
		t.Errorf("the ingress has %+v", ingress.Spec)
	}
	for _, path := range ingress.Spec.Rules[1].HTTP.Paths {
		if strings.Contains(path.Path, "operator") || path.Path == "/" && *path.PathType != networkingv1.PathTypeExact {
			t.Errorf("the ingress publishes %s %s", *path.PathType, path.Path)
		}
	}
	pod := deployment.Spec.Template.Spec
	node := pod.Containers[0]
	if node.Image != "registry.example.com/purser:1.2.3" || *deployment.Spec.Replicas != 2 {
		t.Errorf("%d nodes run %s", *deployment.Spec.Replicas, node.Image)
	}
	if s := node.SecurityContext; !*s.ReadOnlyRootFilesystem || *s.AllowPrivilegeEscalation ||
		s.Capabilities.Drop[0] != "ALL" || !*pod.SecurityContext.RunAsNonRoot || *pod.AutomountServiceAccountToken {
		t.Errorf("a node may do too much: %+v", s)
	}
	for label, value := range deployment.Spec.Selector.MatchLabels {
		if deployment.Spec.Template.Labels[label] != value {
			t.Errorf("the deployment does not select its pods by %s", label)
		}
	}
}

// TestSettingsRollNodes shows that a changed setting makes other pods, and that each required value is asked for.
func TestSettingsRollNodes(t *testing.T) {
	t.Parallel()
	before, err := render(minimal())
	if err != nil {
		t.Fatal(err)
	}
	var settings corev1.ConfigMap
	if err := yaml.UnmarshalStrict([]byte(before["ConfigMap"]), &settings); err != nil {
		t.Fatal(err)
	}
	if got := settings.Data["purser.yaml"]; got != "base_url: https://api.example.com\ndrain: 15s\n" {
		t.Errorf("purser.yaml is\n%s", got)
	}
	values := minimal()
	values["settings"].(map[string]any)["fee_rate"] = 0.1
	after, err := render(values)
	if err != nil {
		t.Fatal(err)
	}
	if before["Deployment"] == after["Deployment"] {
		t.Error("a changed setting does not reach the nodes")
	}
	for _, name := range []string{"image", "secretName", "settings"} {
		values := minimal()
		delete(values, name)
		if _, err := render(values); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("without %s: %v", name, err)
		}
	}
}
