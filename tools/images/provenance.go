// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/google/go-containerregistry/pkg/v1"
	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

const (
	intotoType     = "application/vnd.in-toto+json"
	provenanceType = "https://slsa.dev/provenance/v1"
)

// provenance is an in-toto statement that says how an image was built: from which commit
// and components, with which settings. It is not signed.
func provenance(name string, from source, s settings, subjects []v1.Descriptor, components []component) ([]byte, error) {
	parameters, err := structpb.NewStruct(map[string]any{"image": name, "version": s.version, "fips140": s.fips, "ldflags": s.ldflags})
	if err != nil {
		return nil, err
	}
	run := &slsa.Provenance{
		BuildDefinition: &slsa.BuildDefinition{
			BuildType:            repositoryURL + "/tools/images",
			ExternalParameters:   parameters,
			ResolvedDependencies: materials(from, components),
		},
		// Without times: two builds of a commit give the same statement.
		RunDetails: &slsa.RunDetails{Builder: &slsa.Builder{Id: s.builder}},
	}
	if err := run.Validate(); err != nil {
		return nil, fmt.Errorf("provenance of %s: %w", name, err)
	}
	predicate := &structpb.Struct{}
	if err := convert(run, predicate); err != nil {
		return nil, err
	}
	statement := &intoto.Statement{Type: intoto.StatementTypeUri, PredicateType: provenanceType, Predicate: predicate}
	for _, subject := range subjects {
		statement.Subject = append(statement.Subject, &intoto.ResourceDescriptor{
			Name: name, Digest: map[string]string{subject.Digest.Algorithm: subject.Digest.Hex},
		})
	}
	if err := statement.Validate(); err != nil {
		return nil, fmt.Errorf("provenance of %s: %w", name, err)
	}
	return stableJSON(statement)
}

// materials are the commit and everything that was linked or packed.
func materials(from source, components []component) []*intoto.ResourceDescriptor {
	commit, _, _ := strings.Cut(from.commit, "-")
	all := []*intoto.ResourceDescriptor{{
		Uri: "git+" + repositoryURL + "@" + from.commit, Digest: map[string]string{"gitCommit": commit},
	}}
	for _, c := range components {
		material := &intoto.ResourceDescriptor{Uri: c.purl}
		switch {
		case c.dirHash != "":
			material.Digest = map[string]string{"dirHash": c.dirHash}
		case c.sha512 != "":
			material.Digest = map[string]string{"sha512": c.sha512}
		}
		all = append(all, material)
	}
	return all
}

func convert(from *slsa.Provenance, to *structpb.Struct) error {
	content, err := protojson.Marshal(from)
	return errors.Join(err, protojson.Unmarshal(content, to))
}

// stableJSON encodes a message like protojson, which varies its spaces on purpose.
func stableJSON(statement *intoto.Statement) ([]byte, error) {
	content, err := protojson.Marshal(statement)
	if err != nil {
		return nil, err
	}
	var value any
	if err := json.Unmarshal(content, &value); err != nil {
		return nil, err
	}
	return json.Marshal(value)
}
