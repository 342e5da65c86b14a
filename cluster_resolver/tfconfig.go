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
	// maxTFConfig bounds the text, in bytes: no environment variable is longer.
	maxTFConfig = 1 << 20
)

// TFConfig resolves a cluster from the variable TF_CONFIG: TensorFlow's TFConfigClusterResolver.
//
//	{"cluster": {"chief": ["host0:2222"], "worker": ["host1:2222", "host2:2222"]},
//	 "task": {"type": "worker", "index": 1}, "rpc_layer": "grpc"}
//
// If the variable is not set, the error matches [ErrNotDetected]; if it is malformed, the error is
// a [*ParseError]. An address is a host, with or without a port from 1 to 65535; an error names the
// entry. Two tasks of the cluster cannot have one address. A task index may be a number or a string of digits. The evaluator need not be in the
// cluster; every other task must be.
type TFConfig struct {
	// Getenv reads the environment. Nil stands for an empty environment.
	Getenv Getenv
	// Task, if its Type is set, replaces the task in the variable.
	Task Task
	// RPCLayer, if set, replaces rpc_layer of the variable, whose default is "grpc".
	RPCLayer string
}

// Name returns "tf_config".
func (TFConfig) Name() string { return tfConfigName }

// Resolve reads the variable. It does not block.
func (r TFConfig) Resolve(context.Context) (Cluster, error) {
	text := strings.TrimSpace(r.Getenv.get("TF_CONFIG"))
	if text == "" {
		return Cluster{}, notDetected(tfConfigName, "TF_CONFIG is not set", nil)
	}
	c, err := ParseTFConfig(text)
	if err != nil {
		return Cluster{}, err
	}
	if r.Task.Known() {
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

// ParseTFConfig reads the text of a TF_CONFIG; "{}" is the empty cluster. It ignores unknown keys,
// because other tools put their own keys there. Errors are [*ParseError]s.
func ParseTFConfig(text string) (Cluster, error) {
	c := Cluster{Source: tfConfigName, RPCLayer: DefaultRPCLayer}
	if len(text) > maxTFConfig {
		return Cluster{}, parseError("TF_CONFIG", text, "longer than 1 MiB", "")
	}
	err := eachMember("TF_CONFIG", []byte(text), func(name string, value json.RawMessage) error {
		var err error
		switch name {
		case "cluster":
			c.Spec, err = parseSpec(value)
		case "task":
			c.Task, err = parseTask(value)
		case "rpc_layer":
			err = stringMember(name, value, &c.RPCLayer)
		case "environment":
			err = stringMember(name, value, &c.Environment)
		case "session_master":
			err = stringMember(name, value, &c.SessionMaster)
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

func stringMember(name string, value json.RawMessage, to *string) error {
	if bytes.Equal(value, []byte("null")) {
		return nil
	}
	if err := json.Unmarshal(value, to); err != nil {
		return parseError(name, string(value), "not a string", "")
	}
	return nil
}

func parseTask(value json.RawMessage) (Task, error) {
	var t Task
	hasIndex := false
	err := eachMember("task", value, func(name string, v json.RawMessage) error {
		switch name {
		case "type":
			return stringMember("task.type", v, &t.Type)
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
	case t.Type != "" && !hasIndex: // every worker would be worker 0, and the chief
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
		// The text stays as it is: a port is not put in, and a scheme is not taken away.
		if _, err := parseAddress(fmt.Sprintf("cluster.%s[%d]", task.Type, task.ID), strings.TrimPrefix(address, DefaultRPCLayer+"://"), DefaultPort); err != nil {
			return err
		}
	}
	if err := c.Spec.checkAddresses(); err != nil {
		return err
	}
	if c.RPCLayer != "" && !layerForm.MatchString(c.RPCLayer) {
		return parseError("rpc_layer", c.RPCLayer, "not the name of a protocol", `write "grpc"`)
	}
	if strings.ContainsFunc(c.SessionMaster, func(r rune) bool {
		return !unicode.IsGraphic(r) || unicode.IsSpace(r) || r == ';' || r == utf8.RuneError
	}) {
		return parseError("session_master", c.SessionMaster, "not an address", `write "grpc://host:port"`)
	}
	return checkTask(c)
}

// layerForm is the form of a URL's scheme.
var layerForm = regexp.MustCompile(`^[A-Za-z][A-Za-z0-9+.-]*$`)

func checkTask(c Cluster) error {
	if !c.Task.Known() || c.Spec.Len() == 0 || (c.Task.Type == JobEvaluator && c.Spec.NumTasks(JobEvaluator) == 0) {
		return nil
	}
	if _, err := c.Spec.Address(c.Task.Type, c.Task.ID); err != nil {
		e := parseError("TF_CONFIG.task", fmt.Sprintf("%s %d", c.Task.Type, c.Task.ID), "task is not in the cluster", "")
		e.Err = err
		return e
	}
	return nil
}
