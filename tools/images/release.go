// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// releaseSettings are the flags of images release.
type releaseSettings struct {
	// settings.output is the folder of the release, with images, bundle and catalog.
	settings
	registry, helm string
	// key is the file of the private key. Without it the release is not signed.
	key string
}

func (r releaseSettings) chartFolder() string { return filepath.Join(r.repository, "charts/trireme") }
func (r releaseSettings) layouts() string     { return filepath.Join(r.output, "images") }

// prepare checks everything about a release that can be wrong before it is built, deletes
// an earlier one, and writes its notes.
func prepare(r releaseSettings, changelog string) error {
	if err := checkReleaseVersion(r.version); err != nil {
		return err
	}
	notes, err := releaseNotes(changelog, r.version)
	if err != nil {
		return err
	}
	if r.key != "" {
		if _, err := readSigner(r.key, os.Getenv("COSIGN_PASSWORD")); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(r.output); err != nil {
		return err
	}
	if err := os.MkdirAll(r.output, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.output, "release-notes.md"), []byte(notes), 0o644)
}

// release writes the files of a release beside its images and bundle, which make builds
// before.
func release(ctx context.Context, from source, r releaseSettings, out io.Writer) error {
	if err := checkReleaseVersion(r.version); err != nil {
		return err
	}
	if strings.HasSuffix(from.commit, "-dirty") {
		fmt.Fprintln(out, "warning: the working tree has changes that are not committed: nobody else can build this release")
	}
	if err := packAll(ctx, from, r); err != nil {
		return err
	}
	return seal(r, out)
}

// packAll writes chart, manifests, archives, SBOMs and the manifest of krew.
func packAll(ctx context.Context, from source, r releaseSettings) error {
	images, err := readLayouts(r.layouts(), r.registry, r.version)
	if err != nil {
		return err
	}
	chart, err := packageChart(ctx, from, r, images)
	if err != nil {
		return err
	}
	if err := writeManifests(ctx, r, chart); err != nil {
		return err
	}
	var archives []odhArchive
	for _, p := range odhPlatforms {
		one, err := buildODH(ctx, from, r.settings, p)
		if err != nil {
			return fmt.Errorf("odh for %s: %w", p, err)
		}
		archives = append(archives, one)
	}
	manifest, err := krewManifest(r.tag(), archives)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.output, "krew-"+plugin+".yaml"), manifest, 0o644); err != nil {
		return err
	}
	// The layers are compressed already.
	if err := packFolders(from, r, "trireme-images-"+r.tag()+".tar", "images"); err != nil {
		return err
	}
	return packFolders(from, r, "trireme-bundle-"+r.tag()+".tar.gz", "bundle", "catalog")
}

// packFolders writes folders of the release to one archive: a release on GitHub has files
// only.
func packFolders(from source, r releaseSettings, archive string, folders ...string) error {
	files := map[string]entry{}
	for _, folder := range folders {
		if err := folderEntries(files, filepath.Join(r.output, folder), folder); err != nil {
			return err
		}
	}
	return writeArchive(filepath.Join(r.output, archive), files, from.time)
}

// seal writes the checksums of all files, and signs them.
func seal(r releaseSettings, out io.Writer) error {
	sums, err := checksums(r.output)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.output, checksumsFile), sums, 0o644); err != nil {
		return err
	}
	if r.key == "" {
		fmt.Fprintf(out, "%s has %d files. The release is not signed: set COSIGN_KEY to the file of a private key to sign it.\n", r.output, strings.Count(string(sums), "\n"))
		return nil
	}
	key, err := readSigner(r.key, os.Getenv("COSIGN_PASSWORD"))
	if err != nil {
		return err
	}
	signature, err := key.sign(sums)
	if err != nil {
		return err
	}
	public, err := key.publicKey()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(r.output, signatureFile), []byte(signature+"\n"), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s has %d files. %s is signed; %s verifies it.\n", r.output, strings.Count(string(sums), "\n"), checksumsFile, publicKeyFile)
	return os.WriteFile(filepath.Join(r.output, publicKeyFile), public, 0o644)
}
