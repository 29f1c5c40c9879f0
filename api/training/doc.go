// Package training holds what TrainJob and MPIJob have in common: the words
// that both kinds use in their specifications, how far a job has come, and the
// labels on what belongs to it.
//
// +kubebuilder:object:generate=true
package training
