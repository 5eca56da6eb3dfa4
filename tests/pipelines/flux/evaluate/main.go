// Prints the status that Flux finds of objects by healthCheckExprs, as its kustomize-controller does.
package main

import (
	"context"
	"encoding/json"
	"log"
	"os"

	"github.com/fluxcd/pkg/apis/kustomize"
	"github.com/fluxcd/pkg/runtime/cel"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func main() {
	var asked struct {
		HealthCheckExprs []kustomize.CustomHealthCheck
		Objects          []*unstructured.Unstructured
	}
	check(json.NewDecoder(os.Stdin).Decode(&asked))
	make, err := cel.NewStatusReader(asked.HealthCheckExprs)
	check(err)
	reader, found := make(nil), []string{}
	for _, one := range asked.Objects {
		status, err := reader.ReadStatusForObject(context.Background(), nil, one)
		check(err)
		check(status.Error)
		found = append(found, status.Status.String())
	}
	check(json.NewEncoder(os.Stdout).Encode(found))
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
