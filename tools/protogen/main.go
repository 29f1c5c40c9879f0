// SPDX-License-Identifier: Apache-2.0

// Command protogen writes the Go code of proto files. It does what protoc does, in
// Go, so that nothing has to be installed to change a proto file:
//
//	protogen FOLDER MODULE PLUGIN...
//
// FOLDER is what the imports of the proto files are relative to; MODULE is the Go
// module that the code belongs to, whose folder is the current one.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "usage: protogen FOLDER MODULE PLUGIN...")
		os.Exit(2)
	}
	if err := generate(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

func generate(folder, module string, plugins []string) error {
	files, err := protoFiles(folder)
	if err != nil {
		return err
	}
	descriptors, err := compiled(folder, files)
	if err != nil {
		return err
	}
	request := &pluginpb.CodeGeneratorRequest{FileToGenerate: files, Parameter: new("module=" + module), ProtoFile: descriptors}
	for _, plugin := range plugins {
		response, err := answer(plugin, request)
		if err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
		for _, file := range response.File {
			if err := os.WriteFile(file.GetName(), []byte(file.GetContent()), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// protoFiles are the proto files of a folder, relative to it, in their order.
func protoFiles(folder string) ([]string, error) {
	var files []string
	err := fs.WalkDir(os.DirFS(folder), ".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".proto" {
			files = append(files, path)
		}
		return err
	})
	slices.Sort(files)
	return files, err
}

// compiled are the descriptors of files and of all that they import, each after
// those that it needs.
func compiled(folder string, files []string) ([]*descriptorpb.FileDescriptorProto, error) {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{folder}}),
		SourceInfoMode: protocompile.SourceInfoStandard,
	}
	linked, err := compiler.Compile(context.Background(), files...)
	if err != nil {
		return nil, err
	}
	var descriptors []*descriptorpb.FileDescriptorProto
	seen := map[string]bool{}
	var add func(file protoreflect.FileDescriptor)
	add = func(file protoreflect.FileDescriptor) {
		if seen[file.Path()] {
			return
		}
		seen[file.Path()] = true
		for i := range file.Imports().Len() {
			add(file.Imports().Get(i).FileDescriptor)
		}
		descriptors = append(descriptors, protoutil.ProtoFromFileDescriptor(file))
	}
	for _, file := range linked {
		add(file)
	}
	return descriptors, nil
}

// answer is what a plugin of protoc makes of a request.
func answer(plugin string, request *pluginpb.CodeGeneratorRequest) (*pluginpb.CodeGeneratorResponse, error) {
	// The same request is the same bytes, so that the same code comes of it.
	question, err := proto.MarshalOptions{Deterministic: true}.Marshal(request)
	if err != nil {
		return nil, err
	}
	command := exec.Command(plugin)
	command.Stdin, command.Stderr = bytes.NewReader(question), os.Stderr
	said, err := command.Output()
	if err != nil {
		return nil, err
	}
	response := &pluginpb.CodeGeneratorResponse{}
	if err := proto.Unmarshal(said, response); err != nil {
		return nil, err
	}
	if response.Error != nil {
		return nil, errors.New(response.GetError())
	}
	return response, nil
}
