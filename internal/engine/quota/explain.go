// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Explain returns a message with what is missing and what to do. fitting is the number of
// workers that would fit, 0 if none does; runningJobs is how many jobs run in the
// namespace now.
func Explain(demand *Demand, shortages []Shortage, fitting int64, runningJobs int) string {
	var text strings.Builder
	for i := range shortages {
		shortage := &shortages[i]
		fmt.Fprintf(&text, "Details: Requested %s%s, but namespace quota is %s.\n",
			amount(&shortage.Requested, shortage.Resource), breakdown(demand, shortage), amount(&shortage.Hard, shortage.Resource))
		fmt.Fprintf(&text, "Current usage: %s (%s)\n", amount(&shortage.Used, shortage.Resource), count(int64(runningJobs), "running job"))
		fmt.Fprintf(&text, "Available: %s\n", amount(&shortage.Available, shortage.Resource))
	}
	return text.String() + suggestions(reduce(demand, shortages, fitting))
}

// ExplainWithoutFigures is for users who may not be allowed to see the quotas: it only
// shows what they requested.
func ExplainWithoutFigures(demand *Demand, shortages []Shortage) string {
	var text strings.Builder
	for i := range shortages {
		shortage := &shortages[i]
		fmt.Fprintf(&text, "Details: Requested %s%s, which does not fit into ResourceQuota %s.\n",
			amount(&shortage.Requested, shortage.Resource), breakdown(demand, shortage), shortage.Quota)
	}
	return text.String() + suggestions("Reduce worker count; kubectl describe resourcequota shows what is available")
}

func suggestions(first string) string {
	return "\nSuggestions:\n1. " + first + "\n2. Wait for existing jobs to complete\n3. Request quota increase from administrator"
}

// Brief returns what is requested and what is available, for every shortage.
func Brief(shortages []Shortage) (requested, available string) {
	var requests, remaining []string
	for i := range shortages {
		requests = append(requests, amount(&shortages[i].Requested, shortages[i].Resource))
		remaining = append(remaining, amount(&shortages[i].Available, shortages[i].Resource))
	}
	return strings.Join(requests, " and "), strings.Join(remaining, " and ")
}

func reduce(demand *Demand, shortages []Shortage, fitting int64) string {
	if fitting > 0 {
		return fmt.Sprintf("Reduce worker count to %d (%s total)", fitting, amount(total(demand, &shortages[0], fitting), shortages[0].Resource))
	}
	least := min(max(demand.MinWorkers, 1), max(demand.Workers.Count, 1))
	// Name a resource that is too small even for the minimum; others may suffice for it.
	limiting := slices.IndexFunc(shortages, func(shortage Shortage) bool {
		return total(demand, &shortage, least).Cmp(shortage.Available) > 0
	})
	shortage := &shortages[max(limiting, 0)]
	verb := "need"
	if least == 1 {
		verb = "needs"
	}
	return fmt.Sprintf("No smaller worker count fits: %s %s %s", count(least, "worker"), verb, amount(total(demand, shortage, least), shortage.Resource))
}

// total returns what the job would request with another number of workers, including its
// launcher and objects.
func total(demand *Demand, shortage *Shortage, workers int64) *resource.Quantity {
	saved := shortage.PerWorker.DeepCopy()
	saved.Mul(demand.Workers.Count - workers)
	sum := shortage.Requested.DeepCopy()
	sum.Sub(saved)
	return &sum
}

// breakdown shows the terms of a sum: (20 workers × 2 GPUs + launcher 1 GPU).
func breakdown(demand *Demand, shortage *Shortage) string {
	var terms []string
	if !shortage.PerWorker.IsZero() {
		terms = append(terms, fmt.Sprintf("%s × %s", count(demand.Workers.Count, "worker"), amount(&shortage.PerWorker, shortage.Resource)))
	}
	if !shortage.Launcher.IsZero() {
		terms = append(terms, fmt.Sprintf("launcher %s", amount(&shortage.Launcher, shortage.Resource)))
	}
	if len(terms) == 0 {
		return ""
	}
	return fmt.Sprintf(" (%s)", strings.Join(terms, " + "))
}

// amount formats a quantity with its unit: 2 GPUs, 16 CPUs, 64Gi memory, 5 pods.
func amount(quantity *resource.Quantity, name corev1.ResourceName) string {
	one := quantity.Cmp(resource.MustParse("1")) == 0
	return quantity.String() + " " + unit(name, one)
}

func unit(name corev1.ResourceName, one bool) string {
	if limit, ok := strings.CutPrefix(string(name), "limits."); ok {
		return limit + " limit"
	}
	units := map[corev1.ResourceName][2]string{
		"nvidia.com/gpu":        {"GPU", "GPUs"},
		corev1.ResourceCPU:      {"CPU", "CPUs"},
		corev1.ResourcePods:     {"pod", "pods"},
		"count/pods":            {"pod", "pods"},
		corev1.ResourceMemory:   {"memory", "memory"},
		corev1.ResourceServices: {"Service", "Services"},
		corev1.ResourceSecrets:  {"Secret", "Secrets"},
	}
	forms, known := units[canonical(name)]
	switch {
	case !known:
		return strings.TrimPrefix(string(canonical(name)), "count/")
	case one:
		return forms[0]
	default:
		return forms[1]
	}
}

func count(number int64, noun string) string {
	if number == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", number, noun)
}
