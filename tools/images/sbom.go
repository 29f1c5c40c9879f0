// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	spdxjson "github.com/spdx/tools-golang/json"
	"github.com/spdx/tools-golang/spdx/v2/common"
	"github.com/spdx/tools-golang/spdx/v2/v2_3"
)

const (
	spdxType    = "application/spdx+json"
	noAssertion = "NOASSERTION"
)

// sbomSubject is what an SBOM describes.
type sbomSubject struct {
	// id is the name of the subject within the document.
	id, name, version, purl string
	digest                  v1.Hash
}

// imageSubject is the image of one platform.
func imageSubject(name, version string, digest v1.Hash) sbomSubject {
	return sbomSubject{"Image", name, version, "pkg:oci/" + name + "@" + digest.String(), digest}
}

// sbom lists the components of its subject as SPDX JSON.
func sbom(subject sbomSubject, created time.Time, components []component) ([]byte, error) {
	described := spdxPackage(subject.id, subject.name, subject.version, subject.purl)
	described.PackageChecksums = []common.Checksum{{Algorithm: common.SHA256, Value: subject.digest.Hex}}
	document := &v2_3.Document{
		SPDXVersion:       v2_3.Version,
		DataLicense:       v2_3.DataLicense,
		SPDXIdentifier:    "DOCUMENT",
		DocumentName:      subject.name,
		DocumentNamespace: repositoryURL + "/spdx/" + subject.name + "-" + subject.digest.Hex,
		CreationInfo: &v2_3.CreationInfo{
			Creators: []common.Creator{{CreatorType: "Tool", Creator: "trireme-images"}},
			Created:  created.Format(time.RFC3339),
		},
		Packages:      []*v2_3.Package{described},
		Relationships: []*v2_3.Relationship{relationship("DOCUMENT", "DESCRIBES", subject.id)},
	}
	for i, c := range components {
		id := fmt.Sprintf("Component-%d", i+1)
		document.Packages = append(document.Packages, spdxPackage(id, c.name, c.version, c.purl))
		document.Relationships = append(document.Relationships, relationship(subject.id, "CONTAINS", id))
	}
	var content bytes.Buffer
	if err := spdxjson.Write(document, &content); err != nil {
		return nil, fmt.Errorf("write the SBOM: %w", err)
	}
	return content.Bytes(), nil
}

func spdxPackage(id, name, version, purl string) *v2_3.Package {
	return &v2_3.Package{
		PackageSPDXIdentifier:   common.ElementID(id),
		PackageName:             name,
		PackageVersion:          version,
		PackageDownloadLocation: noAssertion,
		PackageLicenseConcluded: noAssertion,
		PackageLicenseDeclared:  noAssertion,
		PackageCopyrightText:    noAssertion,
		PackageExternalReferences: []*v2_3.PackageExternalReference{
			{Category: common.CategoryPackageManager, RefType: common.TypePackageManagerPURL, Locator: purl},
		},
	}
}

func relationship(from, kind, to string) *v2_3.Relationship {
	return &v2_3.Relationship{
		RefA: common.MakeDocElementID("", from), Relationship: kind, RefB: common.MakeDocElementID("", to),
	}
}
