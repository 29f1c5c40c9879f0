// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// packageChart packages the chart with its version and with the digests of the images,
// and returns the file.
func packageChart(ctx context.Context, from source, r releaseSettings, images []builtImage) (file string, err error) {
	work, err := os.MkdirTemp("", "chart-")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	chart := filepath.Join(work, "trireme")
	if err := os.CopyFS(chart, os.DirFS(r.chartFolder())); err != nil {
		return "", err
	}
	if err := pinImages(filepath.Join(chart, "values.yaml"), r.registry, images); err != nil {
		return "", err
	}
	if err := setTimes(chart, from.time); err != nil {
		return "", err
	}
	version := strings.TrimPrefix(r.tag(), "v")
	_, err = output(ctx, r.repository, nil, r.helm, "package", chart, "--version", version, "--app-version", r.tag(), "--destination", r.output)
	return filepath.Join(r.output, "trireme-"+version+".tgz"), err
}

// pinImages sets registry and digests in the values of the chart. It replaces text, so
// that the comments stay.
func pinImages(file, registry string, images []builtImage) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	replace := func(pattern, value string) error {
		line := regexp.MustCompile(pattern)
		if found := len(line.FindAllIndex(content, -1)); found != 1 {
			return fmt.Errorf("%s has %d lines like %s, and not one", file, found, pattern)
		}
		content = line.ReplaceAll(content, []byte("${1}"+value+"${2}"))
		return nil
	}
	err = replace(`(?m)^(  registry: ).*()$`, registry)
	for _, one := range chartImages(images) {
		err = errors.Join(err, replace(`({name: `+regexp.QuoteMeta(one.image)+`, digest: )""(})`, one.digest.String()))
	}
	if err != nil {
		return err
	}
	return os.WriteFile(file, content, 0o644)
}

// setTimes gives all files one time: helm writes it to the archive.
func setTimes(folder string, modified time.Time) error {
	files := map[string]entry{}
	if err := folderEntries(files, folder, ""); err != nil {
		return err
	}
	for _, one := range files {
		if err := os.Chtimes(one.path, modified, modified); err != nil {
			return err
		}
	}
	return nil
}

// writeManifests renders a packaged chart to trireme.yaml, for installations without
// Helm, and collects the runtimes, which a hook of the chart applies.
func writeManifests(ctx context.Context, r releaseSettings, chart string) error {
	head, err := os.ReadFile(filepath.Join(r.repository, "config/release/trireme.yaml"))
	if err != nil {
		return err
	}
	rendered, err := output(ctx, r.repository, nil, r.helm, "template", "trireme", chart, "--namespace", "trireme-system", "--include-crds", "--no-hooks")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.output, "trireme.yaml"), append(head, rendered...), 0o644); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(r.chartFolder(), "files/runtimes/*.yaml"))
	if err != nil {
		return err
	}
	slices.Sort(files)
	var runtimes bytes.Buffer
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		fmt.Fprintf(&runtimes, "---\n%s", content)
	}
	return os.WriteFile(filepath.Join(r.output, "trireme-runtimes.yaml"), runtimes.Bytes(), 0o644)
}
