// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/trireme-mpi/trireme/api/training"
	"github.com/trireme-mpi/trireme/api/v2alpha1"
	"github.com/trireme-mpi/trireme/internal/engine/job"
	"github.com/trireme-mpi/trireme/internal/kube/jobview"
)

// description prints a job for people, section by section.
type description struct {
	to       io.Writer
	terminal terminal
	now      time.Time
	calledAs string
}

func (d *description) print(j *view, related *relatedObjects) {
	d.head(j, related)
	d.failure(j)
	d.section("Timeline")
	if len(j.Timeline) == 0 {
		d.line(2, "Waiting for the operator to process the job")
	}
	printTimeline(d.to, j, "  ")
	d.pods(j, related)
	d.resources(related)
	d.events(related)
}

func (d *description) section(title string) {
	fmt.Fprintf(d.to, "\n%s\n", d.terminal.paint(bold, title+":"))
}

// line prints a text with an indent, wrapped to the terminal.
func (d *description) line(indent int, text string) {
	for _, line := range d.terminal.wrap(text, indent) {
		fmt.Fprintf(d.to, "%s%s\n", strings.Repeat(" ", indent), line)
	}
}

// field prints a name and its value; a long value is wrapped under itself.
func (d *description) field(name, value string) {
	const indent = 11
	if value == "" {
		return
	}
	if name != "" {
		name += ":"
	}
	for _, line := range d.terminal.wrap(value, indent) {
		fmt.Fprintf(d.to, "%-*s%s\n", indent, name, line)
		name = ""
	}
}

func (d *description) head(j *view, related *relatedObjects) {
	fmt.Fprintf(d.to, "%s %s in namespace %s\n", j.Kind.Kind, d.terminal.paint(bold, j.GetName()), j.GetNamespace())
	fmt.Fprintf(d.to, "%-11s%s\n", "State:", d.state(j))
	if !j.Finished() && j.Phase != training.PhaseRunning && related.waiting == nil {
		d.field("", j.Explanation())
	}
	if waiting := related.waiting; waiting != nil {
		for i, line := range waitingLines(waiting, d.now, d.calledAs) {
			name := ""
			if i == 0 {
				name = "Waiting"
			}
			d.field(name, line)
		}
	}
	created := age(d.now, j.GetCreationTimestamp().Time) + " ago"
	if creator := j.GetAnnotations()[training.AnnotationCreatedBy]; creator != "" {
		created += " by " + creator
	}
	d.field("Created", created)
	if trainJob, ok := j.Object.(*v2alpha1.TrainJob); ok {
		d.field("Runtime", runtimeOf(trainJob))
	}
	if model := related.model; model != nil {
		d.field("MPI", fmt.Sprintf("%s, %s, %s", model.MPI, count(model.Worker.Replicas, "worker"), count(model.WorldSize(), "rank")))
		if containers := model.Worker.Template.Spec.Containers; len(containers) > 0 {
			d.field("Image", containers[0].Image)
		}
	}
	d.progress(j)
	d.field("Restarts", restarts(j, related.model))
	d.field("Queue", j.GetLabels()[training.LabelQueue])
}

// runtimeOf returns the runtime of a job and, once the operator has stored it, the start
// of its digest: jobs with the same digest run with the same runtime.
func runtimeOf(trainJob *v2alpha1.TrainJob) string {
	text := fmt.Sprintf("%s %s", trainJob.Spec.RuntimeRef.Kind, trainJob.Spec.RuntimeRef.Name)
	if digest := trainJob.Status.RuntimeDigest; digest != "" {
		text += fmt.Sprintf(" (sha256:%.12s)", job.ShortDigest(digest))
	}
	return text
}

// restarts returns how often a job was restarted and why, or "" if it never was.
func restarts(j *view, model *job.Job) string {
	restart := j.Restart
	if restart == nil {
		return ""
	}
	text := fmt.Sprint(restart.Count)
	if model != nil {
		text += fmt.Sprintf(" of %d", model.Lifetime.BackoffLimit)
	}
	text += fmt.Sprintf(", last failure: %s", restart.Reason)
	if restart.Message != "" {
		text += ": " + strings.TrimSuffix(restart.Message, ".")
	}
	if j.IsRestarting() {
		text += ", due " + restart.DueTime.UTC().Format(time.RFC3339)
	}
	return text
}

// state returns the state of a job with its run time and ready workers.
func (d *description) state(j *view) string {
	state := j.State()
	text := d.terminal.paint(stateColour(state), state)
	ran, known := j.Ran(d.now)
	switch {
	case known && j.Finished():
		text += " after " + ran.Round(time.Second).String()
	case known && j.Phase == training.PhaseRunning:
		text += " for " + ran.Round(time.Second).String()
	}
	if workers := j.Workers(); workers != "-" && !j.Finished() {
		text += fmt.Sprintf(", %s workers ready", workers)
	}
	return text
}

func count(number int32, noun string) string {
	if number == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", number, noun)
}

func (d *description) failure(j *view) {
	if j.Phase != training.PhaseFailed {
		return
	}
	d.section("Failure")
	d.line(2, d.terminal.paint(red, string(j.FailureReason)))
	d.line(2, j.FailureMessage)
	if process := j.FailedProcess; process != nil {
		if named := processName(process); named != "" {
			d.line(2, "Process: "+named)
		}
		if len(process.LastLines) > 0 {
			d.line(2, "Last lines of output:")
		}
		for _, line := range process.LastLines {
			d.line(4, line)
		}
	}
	d.line(2, fmt.Sprintf("More: %s diagnose %s -n %s", d.calledAs, j.Named(), j.GetNamespace()))
}

// processName returns which process failed and how, as far as that is known.
func processName(process *training.FailedProcess) string {
	var parts []string
	if process.Rank != nil {
		parts = append(parts, fmt.Sprintf("rank %d", *process.Rank))
	}
	if process.Host != "" {
		parts = append(parts, "host "+process.Host)
	}
	if process.ExitCode != nil {
		parts = append(parts, fmt.Sprintf("exit code %d", *process.ExitCode))
	}
	if process.Signal != nil {
		parts = append(parts, fmt.Sprintf("signal %d", *process.Signal))
	}
	return strings.Join(parts, ", ")
}

// leaf is a pod in the tree.
type leaf struct {
	label, name, node, phase, reason string
	restarts                         int32
}

// pods shows launcher and workers as a tree.
func (d *description) pods(j *view, related *relatedObjects) {
	d.section("Pods")
	restarts := map[string]int32{}
	for i := range related.pods {
		for _, container := range related.pods[i].Status.ContainerStatuses {
			restarts[related.pods[i].Name] += container.RestartCount
		}
	}
	leafOf := func(label string, pod *training.PodStatus) leaf {
		phase := pod.Phase
		// The status keeps the last known phase of pods that were deleted after the job finished.
		if j.Finished() && phase == string(corev1.PodRunning) && !related.noPods && !related.hasPod(pod.Name) {
			phase = "Removed"
		}
		return leaf{label: label, name: pod.Name, node: pod.Node, phase: phase, reason: pod.Reason, restarts: restarts[pod.Name]}
	}
	var leaves []leaf
	for i := range related.pods {
		if pod := &related.pods[i]; pod.Labels[training.LabelReplicaType] == training.RoleInitializer {
			leaves = append(leaves, leaf{label: training.RoleInitializer, name: pod.Name, node: pod.Spec.NodeName, phase: string(pod.Status.Phase), restarts: restarts[pod.Name]})
		}
	}
	if j.LauncherPodStatus != nil {
		leaves = append(leaves, leafOf(training.RoleLauncher, j.LauncherPodStatus))
	}
	for i := range j.WorkerPodStatuses {
		worker := &j.WorkerPodStatuses[i]
		leaves = append(leaves, leafOf(fmt.Sprintf("worker %d", worker.Index), &worker.PodStatus))
	}
	if len(leaves) == 0 {
		d.line(2, "None")
		return
	}
	d.tree(j.GetName(), leaves)
}

func (d *description) tree(root string, leaves []leaf) {
	fmt.Fprintf(d.to, "  %s\n", root)
	table := tabwriter.NewWriter(d.to, 0, 8, 2, ' ', 0)
	for i, pod := range leaves {
		branch := "├─"
		if i == len(leaves)-1 {
			branch = "└─"
		}
		cells := []string{"  " + branch + " " + pod.label, orElse(pod.phase, "Pending"), orDash(pod.node), count(pod.restarts, "restart"), pod.name}
		if pod.reason != "" {
			cells = append(cells, pod.reason)
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	_ = table.Flush()
}

// resources shows what the job requests, and what is allocated to its pods on nodes.
func (d *description) resources(related *relatedObjects) {
	if related.model == nil {
		return
	}
	requests, allocated := related.model.TotalRequests(), corev1.ResourceList{}
	for i := range related.pods {
		pod := &related.pods[i]
		if ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed; pod.Spec.NodeName != "" && !ended {
			add(allocated, job.Requests(&pod.Spec), 1)
		}
	}
	d.section("Resources")
	table := tabwriter.NewWriter(d.to, 0, 8, 3, ' ', 0)
	fmt.Fprintf(table, "  \trequested\tallocated\n")
	names := slices.SortedFunc(maps.Keys(requests), func(one, other corev1.ResourceName) int { return strings.Compare(string(one), string(other)) })
	for _, name := range names {
		requestedQuantity, allocatedQuantity := requests[name], allocated[name]
		allocatedText := allocatedQuantity.String()
		if related.noPods {
			allocatedText = "?"
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\n", name, requestedQuantity.String(), allocatedText)
	}
	_ = table.Flush()
}

// add adds a list to a sum, as often as times says.
func add(sum, list corev1.ResourceList, times int32) {
	for name, quantity := range list {
		total := sum[name]
		for range times {
			total.Add(quantity)
		}
		sum[name] = total
	}
}

// shownEvents is the maximum number of events that are shown, the newest ones.
const shownEvents = 20

func (d *description) events(related *relatedObjects) {
	d.section("Events")
	events := related.events
	if related.noEvents {
		d.line(2, "Unknown")
		return
	}
	if len(events) == 0 {
		d.line(2, "None (Kubernetes keeps events for one hour)")
		return
	}
	if left := len(events) - shownEvents; left > 0 {
		events = events[left:]
		d.line(2, fmt.Sprintf("(%d older events are not shown)", left))
	}
	for i := range events {
		event := &events[i]
		reason := event.Reason
		if event.Type == corev1.EventTypeWarning {
			reason = d.terminal.paint(yellow, event.Reason)
		}
		times := ""
		if number := repeated(event); number > 1 {
			times = fmt.Sprintf(" (%d times)", number)
		}
		fmt.Fprintf(d.to, "  %-5s %s  %s/%s%s\n", age(d.now, jobview.EventTime(event)), reason, strings.ToLower(event.InvolvedObject.Kind), event.InvolvedObject.Name, times)
		d.line(8, strings.TrimSpace(event.Message))
	}
}

func repeated(event *corev1.Event) int32 {
	if event.Series != nil {
		return event.Series.Count
	}
	return event.Count
}
