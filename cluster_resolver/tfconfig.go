package clusterresolver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

const (
	tfConfigName = "tf_config"
	// maxTFConfig is the maximum length of the variable in bytes.
	maxTFConfig = 1 << 20
)

// TFConfig resolves a cluster from the variable TF_CONFIG. It corresponds to TensorFlow's
// TFConfigClusterResolver.
//
//	{"cluster": {"chief": ["host0:2222"], "worker": ["host1:2222", "host2:2222"]},
//	 "task": {"type": "worker", "index": 1}, "rpc_layer": "grpc"}
//
// The error matches [ErrNotDetected] if the variable is not set, and is a [*ParseError] if it is
// malformed. An address is a host with or without a port. Tasks must have different addresses. The
// task index can be a number or a string. The task must be in the cluster, unless it is the evaluator.
type TFConfig struct {
	// Getenv reads the environment. If nil, the environment is empty.
	Getenv Getenv
	// Task overrides the task in the variable if its Type is set.
	Task Task
	// RPCLayer overrides rpc_layer in the variable, whose default is "grpc".
	RPCLayer string
}

// Name returns "tf_config".
func (TFConfig) Name() string { return tfConfigName }

// Resolve reads the variable. It does not block.
func (r TFConfig) Resolve(context.Context) (Cluster, error) {
	text := strings.TrimSpace(r.Getenv.lookup("TF_CONFIG"))
	if text == "" {
		return Cluster{}, notDetected(tfConfigName, "TF_CONFIG is not set", nil)
	}
	c, err := ParseTFConfig(text)
	if err != nil {
		return Cluster{}, err
	}
	if r.Task.IsKnown() {
		c.Task = r.Task
		if err := checkTask(c); err != nil {
			return Cluster{}, err
		}
	}
	if r.RPCLayer != "" {
		c.RPCLayer = r.RPCLayer
	}
	return c, nil
}

// ParseTFConfig parses the value of TF_CONFIG. "{}" is an empty cluster. Unknown keys are ignored
// because other tools use them. Errors are [*ParseError] values.
func ParseTFConfig(text string) (Cluster, error) {
	c := Cluster{Source: tfConfigName, RPCLayer: DefaultRPCLayer}
	if len(text) > maxTFConfig {
		return Cluster{}, parseError("TF_CONFIG", text, "longer than 1 MiB", "")
	}
	err := forEachJSONField("TF_CONFIG", []byte(text), func(name string, value json.RawMessage) error {
		var err error
		switch name {
		case "cluster":
			c.Spec, err = parseSpec(value)
		case "task":
			c.Task, err = parseTask(value)
		case "rpc_layer":
			err = parseString(name, value, &c.RPCLayer)
		case "environment":
			err = parseString(name, value, &c.Environment)
		case "session_master":
			err = parseString(name, value, &c.SessionMaster)
		}
		return err
	})
	if err == nil {
		err = checkTFCluster(c)
	}
	if err != nil {
		if e, ok := err.(*ParseError); ok && !strings.HasPrefix(e.Source, "TF_CONFIG") {
			e.Source = "TF_CONFIG." + e.Source
		}
		return Cluster{}, err
	}
	return c, nil
}

func parseString(name string, value json.RawMessage, dst *string) error {
	if bytes.Equal(value, []byte("null")) {
		return nil
	}
	if err := json.Unmarshal(value, dst); err != nil {
		return parseError(name, string(value), "not a string", "")
	}
	return nil
}

func parseTask(value json.RawMessage) (Task, error) {
	var t Task
	hasIndex := false
	err := forEachJSONField("task", value, func(name string, v json.RawMessage) error {
		switch name {
		case "type":
			return parseString("task.type", v, &t.Type)
		case "index":
			digits := string(v)
			if s, err := strconv.Unquote(digits); err == nil {
				digits = s
			}
			n, err := parseIndex("task.index", digits)
			t.ID, hasIndex = n, true
			return err
		}
		return nil
	})
	switch {
	case err != nil:
		return Task{}, err
	case t.Type == "" && hasIndex:
		return Task{}, parseError("task", string(value), "index without a type", `write {"type": "worker", "index": 0}`)
	case t.Type != "" && !hasIndex: // with a default of 0, every worker would be worker 0
		return Task{}, parseError("task", string(value), "type without an index", `write {"type": "worker", "index": 0}`)
	}
	return t, nil
}

func checkTFCluster(c Cluster) error {
	for _, job := range []string{JobChief, jobMaster, JobEvaluator} {
		if n := c.Spec.NumTasks(job); n > 1 {
			return parseError("cluster."+job, strconv.Itoa(n)+" tasks", "at most one task may be the "+job, "")
		}
	}
	for task, address := range c.Spec.All() {
		// The address is only validated; it keeps its scheme and gets no default port.
		source := fmt.Sprintf("cluster.%s[%d]", task.Type, task.ID)
		if _, err := parseAddress(source, strings.TrimPrefix(address, DefaultRPCLayer+"://"), DefaultPort); err != nil {
			return err
		}
	}
	if err := c.Spec.checkAddresses(); err != nil {
		return err
	}
	if c.RPCLayer != "" && !schemePattern.MatchString(c.RPCLayer) {
		return parseError("rpc_layer", c.RPCLayer, "not the name of a protocol", `write "grpc"`)
	}
	if strings.ContainsFunc(c.SessionMaster, func(r rune) bool {
		return !unicode.IsGraphic(r) || unicode.IsSpace(r) || r == ';' || r == utf8.RuneError
	}) {
		return parseError("session_master", c.SessionMaster, "not an address", `write "grpc://host:port"`)
	}
	return checkTask(c)
}

// schemePattern matches the scheme of a URL.
var schemePattern = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`)

func checkTask(c Cluster) error {
	if !c.Task.IsKnown() || c.Spec.Len() == 0 || (c.Task.Type == JobEvaluator && c.Spec.NumTasks(JobEvaluator) == 0) {
		return nil
	}
	if _, err := c.Spec.Address(c.Task.Type, c.Task.ID); err != nil {
		e := parseError("TF_CONFIG.task", fmt.Sprintf("%s %d", c.Task.Type, c.Task.ID), "task is not in the cluster", "")
		e.Err = err
		return e
	}
	return nil
}
