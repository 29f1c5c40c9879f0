// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/trireme-mpi/trireme/internal/testing/dashboards"
)

const root = "../../.."

// foreign are the metrics of others that dashboards and alerts use.
var foreign = []string{
	// dcgm-exporter.
	"DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_FB_USED", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
	// The kubelets' cadvisor.
	"container_cpu_usage_seconds_total", "container_memory_working_set_bytes", "container_network_transmit_bytes_total", "container_network_receive_bytes_total",
	"container_fs_reads_bytes_total", "container_fs_writes_bytes_total",
	// kube-state-metrics.
	"kube_pod_info", "kube_pod_status_phase", "kube_pod_container_resource_requests", "kube_pod_container_status_waiting_reason", "kube_node_status_allocatable", "kube_resourcequota",
	// Prometheus and controller-runtime.
	"up", "leader_election_master_status", "controller_runtime_reconcile_errors_total", "controller_runtime_webhook_requests_total",
}

var (
	documented = regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (counter|gauge|histogram) \\|")
	text       = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)
	byName     = regexp.MustCompile(`__name__=~"([^"]+)"`)
	braces     = regexp.MustCompile(`\{[^}]*\}`)
	lists      = regexp.MustCompile(`\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)`)
	durations  = regexp.MustCompile(`\[[^\]]*\]`)
	word       = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*(\s*\()?`)
)

// keywords of PromQL that are not followed by a parenthesis that opens a call.
var keywords = []string{"by", "without", "on", "ignoring", "and", "or", "unless", "offset", "bool", "inf", "nan", "m", "h", "d"}

// metricsOf returns the names of the metrics in a query, and patterns of names.
func metricsOf(query string) (names, patterns []string) {
	for _, match := range byName.FindAllStringSubmatch(query, -1) {
		patterns = append(patterns, match[1])
	}
	query = text.ReplaceAllString(query, "")
	for _, part := range []*regexp.Regexp{braces, durations, lists} {
		query = part.ReplaceAllString(query, " ")
	}
	for _, found := range word.FindAllString(query, -1) {
		if !strings.HasSuffix(found, "(") && !slices.Contains(keywords, found) {
			names = append(names, found)
		}
	}
	return names, patterns
}

func TestMetricsOf(t *testing.T) {
	names, patterns := metricsOf(`sum by (a) (max_over_time(one{b="x",c=~"two(.*)"}[5m]) / on (d) group_left () three offset 5m) or rate({__name__=~"four_(x|y)"}[1h]) > 0 unless vector(0)`)
	if got := strings.Join(names, " "); got != "one three" || len(patterns) != 1 || patterns[0] != "four_(x|y)" {
		t.Errorf("%q %q", got, patterns)
	}
}

// known are the metrics that exist: those of the reference, with the series of their
// histograms, and those of others.
func known(t *testing.T) []string {
	t.Helper()
	page, err := os.ReadFile(root + "/docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	names := slices.Clone(foreign)
	for _, match := range documented.FindAllStringSubmatch(string(page), -1) {
		names = append(names, match[1])
		if match[2] == "histogram" {
			names = append(names, match[1]+"_bucket", match[1]+"_sum", match[1]+"_count")
		}
	}
	if len(names) < len(foreign)+20 {
		t.Fatalf("only %d metrics were found in the reference", len(names)-len(foreign))
	}
	return names
}

func wantMetrics(t *testing.T, where, query string, known []string) {
	t.Helper()
	names, patterns := metricsOf(query)
	if len(names)+len(patterns) == 0 {
		t.Errorf("%s names no metric: %s", where, query)
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			t.Errorf("%s uses %s, which is neither in docs/reference/metrics.md nor in the list of metrics of others", where, name)
		}
	}
	for _, pattern := range patterns {
		if matches := regexp.MustCompile("^(?:" + pattern + ")$").MatchString; !slices.ContainsFunc(known, matches) {
			t.Errorf("%s uses %s, which no metric matches", where, pattern)
		}
	}
}

func TestDashboards(t *testing.T) {
	all, err := dashboards.Read(root)
	if err != nil {
		t.Fatal(err)
	}
	known, uids := known(t), map[string]bool{}
	for _, dashboard := range all {
		if dashboard.UID == "" || dashboard.Title == "" || uids[dashboard.UID] {
			t.Errorf("%s has no title, or no uid of its own", dashboard.File)
		}
		uids[dashboard.UID] = true
		ids := map[int]bool{}
		for _, panel := range dashboard.Panels {
			where := dashboard.File + ", " + panel.Title
			if panel.Title == "" || ids[panel.ID] {
				t.Errorf("panel %d of %s has no title, or no id of its own", panel.ID, dashboard.File)
			}
			ids[panel.ID] = true
			if panel.GridPos.W == 0 || panel.GridPos.X+panel.GridPos.W > 24 {
				t.Errorf("%s does not fit the grid: %+v", where, panel.GridPos)
			}
			if panel.Type != "row" && len(panel.Targets) == 0 {
				t.Errorf("%s has no query", where)
			}
			for _, target := range panel.Targets {
				if target.Datasource == nil || target.Datasource.UID != "${datasource}" {
					t.Errorf("%s has a data source of its own", where)
				}
				wantMetrics(t, where, target.Expr, known)
			}
		}
	}
}

// An alert whose metric was renamed never fires.
func TestAlertsUseKnownMetrics(t *testing.T) {
	known := known(t)
	for name, query := range alerts(t) {
		wantMetrics(t, name, query, known)
	}
}
