// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/internal/engine/job"
)

const header = "apiVersion: trireme.kubeflow.org/v1alpha1\nkind: OperatorConfiguration\n"

func write(t *testing.T, content string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(path string) (*Config, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// The numbers that the API is documented with, written down a second time: who
// changes one changes what users were told.
func documented() *Config {
	return &Config{
		APIVersion: "trireme.kubeflow.org/v1alpha1",
		Kind:       "OperatorConfiguration",
		Limits: Limits{
			MaxNodes:   64,
			MinWorkers: 2, MaxWorkers: 100,
			MaxSlots: MaxSlots{TrainJob: 16, MPIJob: 8},
			MaxGPUs:  16, ManyGPUs: 8,
			MinCPU: resource.MustParse("1"), MinMemory: resource.MustParse("1Gi"),
			MinScheduleTimeoutSeconds: 60, MaxScheduleTimeoutSeconds: 3600,
			MaxEnv: 1000, MaxBytes: 1048576,
		},
		Defaults: Defaults{
			LauncherCPU: resource.MustParse("2"), LauncherMemory: resource.MustParse("4Gi"),
			ScheduleTimeoutSeconds: 300,
		},
		Admission:      Admission{MPIJobDeprecation: "Off", PodSecurity: "Auto"},
		Agent:          Agent{Image: "trireme.local/mpi-agent:dev", Delivery: "Auto"},
		Initializer:    Initializer{Image: "trireme.local/initializer:dev"},
		MPIJobs:        MPIJobs{Manage: "All"},
		Gang:           Gang{CoschedulerName: "scheduler-plugins-scheduler"},
		Network:        Network{EgressPorts: []int32{443}},
		Failures:       Failures{ImagePullSeconds: 300, QuotaSeconds: 60, RestartSeconds: 10},
		Reconcile:      Reconcile{Workers: 16},
		Client:         Client{QPS: 500, Burst: 1000},
		Metrics:        Metrics{BindAddress: ":8443"},
		LeaderElection: LeaderElection{Enabled: true},
		Webhook: Webhook{
			Port: 9443, CertificateDirectory: "/tmp/trireme-webhook", ManageCertificates: true,
			ServiceName: "trireme-webhook", SecretName: "trireme-webhook", ConfigurationName: "trireme",
		},
		Server: Server{ManageCertificate: true, ServiceName: "trireme-server", SecretName: "trireme-server-tls", CAConfigMapName: "trireme-ca"},
		Hang:   Hang{After: metav1.Duration{Duration: 15 * time.Minute}, Action: training.HangWarn}, Reports: Reports{Port: 9444, ServiceName: "trireme-reports"},
	}
}

func TestDefault(t *testing.T) {
	if diff := cmp.Diff(documented(), Default()); diff != "" {
		t.Errorf("defaults (-documented +got):\n%s", diff)
	}
	if err := Default().Validate(); err != nil {
		t.Errorf("the defaults have faults: %v", err)
	}
	// Whoever changes a configuration changes that one.
	Default().Limits.MaxNodes = 1
	Default().Network.EgressPorts[0] = 1
	if diff := cmp.Diff(documented(), Default()); diff != "" {
		t.Errorf("defaults after a change of them (-documented +got):\n%s", diff)
	}
}

func TestParse(t *testing.T) {
	tests := map[string]struct {
		file string
		want func(*Config)
	}{
		"only the header":         {want: func(*Config) {}},
		"a comment and a section": {file: "# nothing\nlimits:\n", want: func(*Config) {}},
		"one limit, and its neighbours stay": {
			file: "limits: {maxNodes: 8}",
			want: func(config *Config) { config.Limits.MaxNodes = 8 },
		},
		"one of a pair, and the other stays": {
			file: "limits: {maxSlotsPerWorker: {mpiJob: 32}}",
			want: func(config *Config) { config.Limits.MaxSlots.MPIJob = 32 },
		},
		"none, which is not the default": {
			file: "limits: {minWorkers: 0, maxGPUsPerWorker: 0, minCPUPerWorker: 0}\nwebhook: {manageCertificates: false}",
			want: func(config *Config) {
				config.Limits.MinWorkers, config.Limits.MaxGPUs, config.Limits.MinCPU = 0, 0, resource.Quantity{}
				config.Webhook.ManageCertificates = false
			},
		},
		"quantities, as a number and as text": {
			file: "limits: {minCPUPerWorker: 0.5, minMemoryPerWorker: 64Mi}\ndefaults: {launcherCPU: 1}",
			want: func(config *Config) {
				config.Limits.MinCPU, config.Limits.MinMemory = resource.MustParse("500m"), resource.MustParse("64Mi")
				config.Defaults.LauncherCPU = resource.MustParse("1")
			},
		},
		"a user": {file: "defaults: {runAsUser: 1000}", want: func(config *Config) { config.Defaults.RunAsUser = new(int64(1000)) }},
		"how jobs are judged": {
			file: "admission: {mpiJobDeprecation: Refuse, podSecurity: Warn}",
			want: func(config *Config) {
				config.Admission = Admission{MPIJobDeprecation: DeprecationRefuse, PodSecurity: PodSecurityWarn}
			},
		},
		"ports that are open instead of the default's": {
			file: "network: {egressPorts: [9000]}",
			want: func(config *Config) { config.Network.EgressPorts = []int32{9000} },
		},
		"a network policy for every job": {
			file: "network: {defaultTemplate: Default}",
			want: func(config *Config) { config.Network.DefaultTemplate = "Default" },
		},
		"no port that is open": {
			file: "network: {egressPorts: []}",
			want: func(config *Config) { config.Network.EgressPorts = []int32{} },
		},
		"a replica that is alone": {
			file: "leaderElection: {enabled: false}\nmetrics: {bindAddress: \"0\"}",
			want: func(config *Config) { config.LeaderElection.Enabled, config.Metrics.BindAddress = false, "0" },
		},
		"more names for the server": {
			file: "server: {extraNames: [train.example.com, '*.apps.example.com', 192.0.2.7, '2001:db8::7']}",
			want: func(config *Config) {
				config.Server.ExtraNames = []string{"train.example.com", "*.apps.example.com", "192.0.2.7", "2001:db8::7"}
			},
		},
		"a domain and an image by its digest": {
			file: "clusterDomain: example.internal\nagent: {image: quay.example/agent@sha256:" + strings.Repeat("a", 64) + "}",
			want: func(config *Config) {
				config.ClusterDomain, config.Agent.Image = "example.internal", "quay.example/agent@sha256:"+strings.Repeat("a", 64)
			},
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := load(write(t, header+tc.file))
			if err != nil {
				t.Fatal(err)
			}
			want := documented()
			tc.want(want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("configuration (-want +got):\n%s", diff)
			}
		})
	}
}

// Some editors begin every file with the mark of a document.
func TestParseOfOneMarkedDocument(t *testing.T) {
	got, err := load(write(t, "---\n"+header+"limits: {maxNodes: 8}\n"))
	if err != nil || got.Limits.MaxNodes != 8 {
		t.Errorf("want 8 nodes, got %+v (%v)", got, err)
	}
}

// Every field can be set from a file: what is written out reads back.
func TestParseReadsEveryField(t *testing.T) {
	want := &Config{
		APIVersion: APIVersion, Kind: Kind,
		Limits: Limits{
			MaxNodes: 11, MinWorkers: 12, MaxWorkers: 13, MaxSlots: MaxSlots{TrainJob: 14, MPIJob: 15}, MaxGPUs: 17, ManyGPUs: 18,
			MinCPU: resource.MustParse("19"), MinMemory: resource.MustParse("20"), MinScheduleTimeoutSeconds: 21, MaxScheduleTimeoutSeconds: 22, MaxEnv: 23, MaxBytes: 24,
		},
		Defaults:    Defaults{LauncherCPU: resource.MustParse("25"), LauncherMemory: resource.MustParse("26"), ScheduleTimeoutSeconds: 27, MPIJobScheduleTimeoutSeconds: 39, RunAsUser: new(int64(28))},
		Admission:   Admission{MPIJobDeprecation: DeprecationWarn, PodSecurity: PodSecurityRefuse},
		Agent:       Agent{Image: "agent:1", PullSecrets: []string{"f"}, Delivery: DeliveryInitContainer},
		MPIJobs:     MPIJobs{Manage: "Named"},
		Initializer: Initializer{Image: "initializer:1"}, ClusterDomain: "example.internal",
		Gang: Gang{CoschedulerName: "gangs"}, Network: Network{EgressPorts: []int32{30, 31}, DefaultTemplate: "Restricted"}, Failures: Failures{ImagePullSeconds: 32, QuotaSeconds: 37, RestartSeconds: 38},
		Reconcile: Reconcile{Workers: 33}, Client: Client{QPS: 34.5, Burst: 35}, Metrics: Metrics{BindAddress: "127.0.0.1:36"},
		Webhook: Webhook{Port: 29, CertificateDirectory: "a", Host: "b", ServiceName: "c", SecretName: "d", ConfigurationName: "e"},
		Server:  Server{ExtraNames: []string{"f"}, ServiceName: "g", SecretName: "h", CAConfigMapName: "i"},
		Hang:    Hang{After: metav1.Duration{Duration: time.Hour}, Action: training.HangFail}, Reports: Reports{Port: 40, ServiceName: "j"},
	}
	text, err := yaml.Marshal(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := load(write(t, string(text)))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("configuration (-written +read):\n%s", diff)
	}
}

func TestParseRefuses(t *testing.T) {
	const otherVersion = `apiVersion and kind are %s; they must be "trireme.kubeflow.org/v1alpha1" and "OperatorConfiguration"`
	versions := func(there string) string { return strings.Replace(otherVersion, "%s", there, 1) }
	tests := map[string]struct {
		file string
		// want is each part of the message.
		want []string
	}{
		"an unknown field":               {file: header + "limits: {maxNode: 8}", want: []string{`unknown field "maxNode"`}},
		"an unknown section":             {file: header + "logging: {}", want: []string{`unknown field "logging"`}},
		"a field twice":                  {file: header + "limits: {maxNodes: 8, maxNodes: 9}", want: []string{`"maxNodes"`}},
		"a word for a number":            {file: header + "limits: {maxNodes: many}", want: []string{"maxNodes"}},
		"a number beyond its type":       {file: header + "limits: {maxNodes: 2147483648}", want: []string{"maxNodes"}},
		"a quantity that is none":        {file: header + "limits: {minCPUPerWorker: one}", want: []string{"quantities must match"}},
		"no YAML":                        {file: "\tlimits", want: []string{"yaml"}},
		"two documents":                  {file: header + "---\n" + header + "limits: {maxNodes: 8}", want: []string{"has more than one document"}},
		"another version":                {file: "apiVersion: trireme.kubeflow.org/v1\nkind: OperatorConfiguration", want: []string{versions(`"trireme.kubeflow.org/v1" and "OperatorConfiguration"`)}},
		"another kind":                   {file: "apiVersion: trireme.kubeflow.org/v1alpha1\nkind: Configuration", want: []string{versions(`"trireme.kubeflow.org/v1alpha1" and "Configuration"`)}},
		"an object of another sort":      {file: "apiVersion: v1\nkind: ConfigMap", want: []string{versions(`"v1" and "ConfigMap"`)}},
		"neither version nor kind":       {file: "limits: {maxNodes: 8}", want: []string{versions(`"" and ""`)}},
		"names without an authority":     {file: header + "webhook: {clientNames: [kube-apiserver]}", want: []string{"webhook.clientNames requires webhook.clientCAFile"}},
		"a port that no machine has":     {file: header + "webhook: {port: 70000}", want: []string{"webhook.port is 70000; it must be between 1 and 65535"}},
		"a port beyond 32 bits":          {file: header + "webhook: {port: 4294967297}", want: []string{"webhook.port"}},
		"root for those who must not be": {file: header + "defaults: {runAsUser: 0}", want: []string{"defaults.runAsUser is 0; it must be at least 1, because pods without a user must not be root"}},
		"a hang before the start":        {file: header + "hang: {after: -1s}", want: []string{"hang.after is -1s; it must be 0s, which disables the detection, or longer"}},
		"an unknown action":              {file: header + "hang: {action: Kill}", want: []string{`hang.action is "Kill"; it must be one of [Warn Restart Fail]`}},
		"a port for reports":             {file: header + "reports: {port: -1, serviceName: ''}", want: []string{"reports.port is -1; it must be between 1 and 65535", "reports.serviceName is empty"}},
		"a user below root":              {file: header + "defaults: {runAsUser: -1}", want: []string{"defaults.runAsUser is -1; it must be at least 1"}},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			path := write(t, tc.file)
			got, err := load(path)
			if err == nil || got != nil {
				t.Fatal("it was accepted")
			}
			for _, want := range append(tc.want, "configuration "+path) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("no word of %q in: %v", want, err)
				}
			}
		})
	}
}

// Every fault of a file is told at once, each with the limit that it breaks.
func TestParseReportsEveryFault(t *testing.T) {
	path := write(t, `
apiVersion: v1
kind: OperatorConfiguration
limits:
  maxNodes: 0
  minWorkers: -1
  maxWorkers: 0
  maxSlotsPerWorker: {trainJob: 0, mpiJob: 0}
  maxGPUsPerWorker: -1
  warnAboveGPUsPerNode: -1
  minCPUPerWorker: -1
  minMemoryPerWorker: -1Gi
  minScheduleTimeoutSeconds: 0
  maxScheduleTimeoutSeconds: -1
  maxEnvPerContainer: 0
  maxObjectBytes: 0
defaults:
  launcherCPU: -500m
  launcherMemory: -1
  scheduleTimeoutSeconds: 0
  mpiJobScheduleTimeoutSeconds: -1
admission:
  mpiJobDeprecation: "On"
  podSecurity: refuse
mpiJobs: {manage: all}
agent: {image: "Agent:1", pullSecrets: [good, Bad], delivery: Sidecar}
initializer: {image: ""}
clusterDomain: .local
gang: {coschedulerName: ""}
network: {egressPorts: [443, 0, 65536], defaultTemplate: default}
failures: {imagePullSeconds: 0, quotaSeconds: 0, restartSeconds: 0}
reconcile: {workers: 0}
client: {qps: 0.5, burst: 0}
metrics: {bindAddress: "8443"}
webhook:
  port: 0
  certificateDirectory: ""
  serviceName: ""
  secretName: ""
  configurationName: ""
server:
  extraNames: [train.example.com, https://train.example.com, Train, ""]
  serviceName: ""
  secretName: ""
  caConfigMapName: ""
`)
	want := "configuration " + path + `: apiVersion and kind are "v1" and "OperatorConfiguration"; they must be "trireme.kubeflow.org/v1alpha1" and "OperatorConfiguration"
limits.maxNodes is 0; it must be at least 1
limits.minWorkers is -1; it must be at least 0
limits.maxWorkers is 0; it must be at least 1
limits.maxSlotsPerWorker.trainJob is 0; it must be at least 1
limits.maxSlotsPerWorker.mpiJob is 0; it must be at least 1
limits.maxGPUsPerWorker is -1; it must be at least 0
limits.warnAboveGPUsPerNode is -1; it must be at least 0
limits.minScheduleTimeoutSeconds is 0; it must be at least 1
limits.maxScheduleTimeoutSeconds is -1; it must be at least 0
limits.maxEnvPerContainer is 0; it must be at least 1
limits.maxObjectBytes is 0; it must be at least 1
defaults.scheduleTimeoutSeconds is 0; it must be at least 1
defaults.mpiJobScheduleTimeoutSeconds is -1; it must be at least 0
failures.imagePullSeconds is 0; it must be at least 1
failures.quotaSeconds is 0; it must be at least 1
failures.restartSeconds is 0; it must be at least 1
reconcile.workers is 0; it must be at least 1
client.burst is 0; it must be at least 1
client.qps is 0.5; it must be at least 1
webhook.certificateDirectory is empty
webhook.serviceName is empty
webhook.secretName is empty
webhook.configurationName is empty
server.serviceName is empty
server.secretName is empty
server.caConfigMapName is empty
gang.coschedulerName is empty
server.secretName and webhook.secretName are both ""; the server must not be able to read the CA's key
server.extraNames[1] is "https://train.example.com"; it must be a DNS name in lower case, or an IP address
server.extraNames[2] is "Train"; it must be a DNS name in lower case, or an IP address
server.extraNames[3] is ""; it must be a DNS name in lower case, or an IP address
agent.image is "Agent:1"; it must be an image name: invalid reference format: repository name (library/Agent) must be lowercase
initializer.image is ""; it must be an image name: invalid reference format
agent.pullSecrets[1] is "Bad"; a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
clusterDomain is ".local"; a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')
limits.minCPUPerWorker is -1; it must not be negative
limits.minMemoryPerWorker is -1Gi; it must not be negative
defaults.launcherCPU is -500m; it must not be negative
defaults.launcherMemory is -1; it must not be negative
webhook.port is 0; it must be between 1 and 65535
network.egressPorts[1] is 0; it must be between 1 and 65535
network.egressPorts[2] is 65536; it must be between 1 and 65535
metrics.bindAddress is "8443"; it must be an address with a port, such as :8443, or "0" for none
admission.mpiJobDeprecation is "On"; it must be one of [Off Warn Refuse]
admission.podSecurity is "refuse"; it must be one of [Auto Refuse Warn]
mpiJobs.manage is "all"; it must be one of [All New Named]
agent.delivery is "Sidecar"; it must be one of [Auto ImageVolume InitContainer]
network.defaultTemplate is "default"; it must be one of [Default Restricted]`
	_, err := load(path)
	if err == nil {
		t.Fatal("it was accepted")
	}
	if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
}

// The CA that issues is the webhook's: without it there is nothing to issue with.
func TestIssuesServerCertificate(t *testing.T) {
	for name, tc := range map[string]struct {
		file string
		want bool
	}{
		"by default":              {want: true},
		"another issues it":       {file: "server: {manageCertificate: false}"},
		"another issues them all": {file: "webhook: {manageCertificates: false}"},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := load(write(t, header+tc.file))
			if err != nil {
				t.Fatal(err)
			}
			if got := config.IssuesServerCertificate(); got != tc.want {
				t.Errorf("the operator issues it: %v", got)
			}
		})
	}
}

// Two limits of one thing must leave room between them.
func TestValidateComparesLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string
	}{
		"as many workers at least as at most": {change: func(config *Config) { config.Limits.MinWorkers = 100 }},
		"more workers at least than at most":  {change: func(config *Config) { config.Limits.MinWorkers = 101 }, want: "limits.maxWorkers is 100; it must be at least 101"},
		"as long at least as at most":         {change: func(config *Config) { config.Limits.MinScheduleTimeoutSeconds = 3600 }},
		"longer at least than at most":        {change: func(config *Config) { config.Limits.MinScheduleTimeoutSeconds = 3601 }, want: "limits.maxScheduleTimeoutSeconds is 3600; it must be at least 3601"},
	} {
		t.Run(name, func(t *testing.T) {
			config := Default()
			tc.change(config)
			got := ""
			if err := config.Validate(); err != nil {
				got = err.Error()
			}
			if got != tc.want {
				t.Errorf("fault %q, want %q", got, tc.want)
			}
		})
	}
}

func TestJobDefaults(t *testing.T) {
	config := Default()
	config.Defaults.RunAsUser = new(int64(1000))
	want := job.Defaults{
		LauncherResources: corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("4Gi")},
		MaxNodes:          64, ScheduleTimeoutSeconds: 300, MinScheduleTimeoutSeconds: 60,
		RunAsUser: new(int64(1000)), Hang: job.Hang{After: 15 * time.Minute, Action: training.HangWarn},
	}
	if diff := cmp.Diff(want, config.JobDefaults()); diff != "" {
		t.Errorf("defaults of a job (-want +got):\n%s", diff)
	}
}
