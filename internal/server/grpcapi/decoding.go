// SPDX-License-Identifier: Apache-2.0

package grpcapi

import (
	"context"
	"fmt"
	"net/http"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	"github.com/trireme-mpi/trireme/internal/server/apierror"
)

// A message that cannot be decoded is an error of the client. gRPC itself reports an
// internal error of the server, before any interceptor runs. So the codec here returns no
// error, and leaves it to the method.

// Options are the options that a server of these services needs.
func Options() []grpc.ServerOption {
	return []grpc.ServerOption{grpc.ForceServerCodecV2(codec{encoding.GetCodecV2("proto")})}
}

// decoding is a message that is being decoded, with the error.
type decoding struct {
	proto.Message
	err error
}

type codec struct{ encoding.CodecV2 }

// Unmarshal decodes a message.
func (c codec) Unmarshal(data mem.BufferSlice, message any) error {
	if decoding, is := message.(*decoding); is {
		decoding.err = c.CodecV2.Unmarshal(data, decoding.Message)
		return nil
	}
	return c.CodecV2.Unmarshal(data, message)
}

// decode receives and decodes a message.
func decode(message any, receive func(any) error) error {
	decoding := &decoding{Message: message.(proto.Message)}
	if err := receive(decoding); err != nil {
		return err
	}
	if decoding.err != nil {
		return apierror.New(http.StatusBadRequest, "BadRequest", fmt.Sprintf("The message cannot be decoded: %v", decoding.err), "Encode it as the proto files define; gRPC reflection lists them")
	}
	return nil
}

// withDecodeErrors returns a service whose methods refuse messages that cannot be decoded.
func withDecodeErrors(description grpc.ServiceDesc) *grpc.ServiceDesc {
	methods := description.Methods
	description.Methods = nil
	for _, method := range methods {
		handle := method.Handler
		method.Handler = func(service any, ctx context.Context, receive func(any) error, interceptor grpc.UnaryServerInterceptor) (any, error) {
			// No interceptor has run yet, so the error is converted here.
			return handle(service, ctx, func(message any) error { return Status(decode(message, receive)) }, interceptor)
		}
		description.Methods = append(description.Methods, method)
	}
	streams := description.Streams
	description.Streams = nil
	for _, method := range streams {
		handle := method.Handler
		method.Handler = func(service any, stream grpc.ServerStream) error { return handle(service, &decodingStream{stream}) }
		description.Streams = append(description.Streams, method)
	}
	return &description
}

type decodingStream struct{ grpc.ServerStream }

// RecvMsg receives and decodes a message.
func (d *decodingStream) RecvMsg(message any) error {
	return decode(message, d.ServerStream.RecvMsg)
}
