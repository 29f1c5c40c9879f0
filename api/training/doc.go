// SPDX-License-Identifier: Apache-2.0

// Package training has what TrainJob and MPIJob share: types of their specs, their
// status, and the labels on the objects of a job.
//
// +kubebuilder:object:generate=true
package training
