package shortform

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the schema into config/deploy")

const schemaFile = "../../../config/deploy/loadbalancer.schema.json"

// TestSchemaFile: the file that editors read follows from the types.
func TestSchemaFile(t *testing.T) {
	want, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	if *update {
		if err := os.WriteFile(schemaFile, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(schemaFile); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the types have changed (%v); run: go test ./proxier/source/shortform -run TestSchemaFile -update", err)
	}
}

// TestSchemaAgrees: an editor and Verdict accept the same documents, apart from what no schema can say.
func TestSchemaAgrees(t *testing.T) {
	text, err := Schema()
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	compiler := jsonschema.NewCompiler()
	if err := compiler.AddResource("short.json", parsed); err != nil {
		t.Fatal(err)
	}
	schema, err := compiler.Compile("short.json")
	if err != nil {
		t.Fatal(err)
	}
	accepts := func(document string) error {
		asJSON, err := yaml.YAMLToJSON([]byte(strings.Replace(document, "masquerade: no\n", "masquerade: \"no\"\n", 1))) // as YAML 1.2 reads it
		if err != nil {
			t.Fatal(err)
		}
		instance, err := jsonschema.UnmarshalJSON(bytes.NewReader(asJSON))
		if err != nil {
			t.Fatal(err)
		}
		return schema.Validate(instance)
	}
	for _, good := range []string{complete, one} {
		if err := accepts(good); err != nil {
			t.Errorf("%v\n%s", err, good)
		}
	}
	for _, tt := range wrong {
		if err := accepts(strings.ReplaceAll(complete, tt.old, tt.new)); (err == nil) != tt.between {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}
