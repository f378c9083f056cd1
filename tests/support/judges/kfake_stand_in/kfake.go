// Package kfake stands in for franz-go's package of that name: tests that were written for its fake broker get clusters
// of real nodes, each a process. The environment says how a directory is formatted (JUDGED_FORMAT) and a node is started
// (JUDGED_SERVE), each a JSON list of words to which the path of a properties file is added.
package kfake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	clusterID    = "MkU3OEVBNTcwNTJENDM2Qg"
	startSeconds = 60
)

// least has the values below which Kafka's brokers do not go. The fake goes below them, and has one setting of its own.
var least = map[string]int{"group.share.record.lock.duration.ms": 1000}

var ofTheFake = map[string]bool{"share.record.lock.sweep.interval.ms": true}

type config struct {
	brokers  int
	topics   map[string]int32
	settings map[string]string
}

// Opt is an option of a cluster.
type Opt func(*config)

// NumBrokers says how many brokers there are; three without it, as in the fake.
func NumBrokers(n int) Opt { return func(c *config) { c.brokers = n } }

// SeedTopics says which topics there are from the start.
func SeedTopics(partitions int32, names ...string) Opt {
	return func(c *config) {
		for _, name := range names {
			c.topics[name] = partitions
		}
	}
}

// BrokerConfigs has settings of all brokers.
func BrokerConfigs(settings map[string]string) Opt {
	return func(c *config) {
		for key, value := range settings {
			c.settings[key] = value
		}
	}
}

// Cluster is a running cluster.
type Cluster struct {
	folder    string
	nodes     []*exec.Cmd
	addresses []string
}

// TopicInfo is what the tests ask of a topic.
type TopicInfo struct {
	Topic   string
	TopicID [16]byte
}

// GroupCommit is what a group has committed of a partition.
type GroupCommit struct {
	Offset      int64
	LeaderEpoch int32
	Metadata    string
	At          time.Time
}

// NewCluster starts nodes, of which the first is the controller as well, and waits for all of them.
func NewCluster(opts ...Opt) (*Cluster, error) {
	asked := config{brokers: 3, topics: map[string]int32{}, settings: map[string]string{}}
	for _, opt := range opts {
		opt(&asked)
	}
	folder, err := os.MkdirTemp("", "judged")
	if err != nil {
		return nil, err
	}
	made := &Cluster{folder: folder}
	if err := made.start(asked); err != nil {
		made.Close()
		return nil, err
	}
	return made, nil
}

func (c *Cluster) start(asked config) error {
	ports, err := freePorts(asked.brokers + 1)
	if err != nil {
		return err
	}
	formatted := make(chan error, asked.brokers)
	for id := range asked.brokers {
		go func() { formatted <- format(c.properties(id), lines(asked, id, c.folder, ports)) }()
	}
	for range asked.brokers {
		err = errors.Join(err, <-formatted)
	}
	if err != nil {
		return err
	}
	for id := range asked.brokers {
		log, err := os.Create(filepath.Join(c.folder, strconv.Itoa(id)+".log"))
		if err != nil {
			return err
		}
		node := command("JUDGED_SERVE", c.properties(id))
		node.Stdout, node.Stderr = log, log
		if err := node.Start(); err != nil {
			return err
		}
		c.nodes = append(c.nodes, node)
		c.addresses = append(c.addresses, fmt.Sprintf("127.0.0.1:%d", ports[id]))
	}
	return c.ready(asked)
}

func (c *Cluster) properties(id int) string {
	return filepath.Join(c.folder, strconv.Itoa(id)+".properties")
}

func format(path string, lines []string) error {
	if err := os.WriteFile(path, []byte(strings.Join(append(lines, ""), "\n")), 0o600); err != nil {
		return err
	}
	if out, err := command("JUDGED_FORMAT", path, "-t", clusterID).CombinedOutput(); err != nil {
		return fmt.Errorf("format: %w: %s", err, out)
	}
	return nil
}

func lines(asked config, id int, folder string, ports []int) []string {
	listeners, roles := fmt.Sprintf("PLAINTEXT://127.0.0.1:%d", ports[id]), "broker"
	controller := ports[asked.brokers]
	if id == 0 {
		listeners, roles = fmt.Sprintf("%s,CONTROLLER://127.0.0.1:%d", listeners, controller), "broker,controller"
	}
	copies := strconv.Itoa(min(asked.brokers, 3))
	settings := map[string]string{
		"process.roles":                                    roles,
		"node.id":                                          strconv.Itoa(id),
		"log.dirs":                                         filepath.Join(folder, strconv.Itoa(id)),
		"listeners":                                        listeners,
		"controller.listener.names":                        "CONTROLLER",
		"listener.security.protocol.map":                   "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
		"controller.quorum.voters":                         fmt.Sprintf("0@127.0.0.1:%d", controller),
		"default.replication.factor":                       copies,
		"offsets.topic.num.partitions":                     "1",
		"offsets.topic.replication.factor":                 copies,
		"transaction.state.log.num.partitions":             "1",
		"transaction.state.log.min.isr":                    "1",
		"transaction.state.log.replication.factor":         copies,
		"share.coordinator.state.topic.num.partitions":     "1",
		"share.coordinator.state.topic.min.isr":            "1",
		"share.coordinator.state.topic.replication.factor": copies,
		"group.initial.rebalance.delay.ms":                 "0",
		"group.consumer.min.heartbeat.interval.ms":         "100",
		"group.consumer.min.session.timeout.ms":            "500",
		"group.share.min.heartbeat.interval.ms":            "100",
		"group.share.min.session.timeout.ms":               "500",
		"group.share.min.record.lock.duration.ms":          "1000",
	}
	for key, value := range asked.settings {
		if ofTheFake[key] {
			continue
		}
		if number, err := strconv.Atoi(value); err == nil {
			value = strconv.Itoa(max(number, least[key]))
		}
		settings[key] = value
	}
	session, hasSession := asked.settings["group.share.session.timeout.ms"]
	if _, hasInterval := asked.settings["group.share.heartbeat.interval.ms"]; hasSession && !hasInterval && len(session) < 4 {
		settings["group.share.heartbeat.interval.ms"] = "100" // brokers want it below the timeout, the fake does not
	}
	made := make([]string, 0, len(settings))
	for key, value := range settings {
		made = append(made, key+"="+value)
	}
	return made
}

func command(variable string, more ...string) *exec.Cmd {
	var words []string
	if err := json.Unmarshal([]byte(os.Getenv(variable)), &words); err != nil || len(words) == 0 {
		panic(variable + " is not a list of words")
	}
	return exec.Command(words[0], append(words[1:], more...)...)
}

func freePorts(count int) ([]int, error) {
	ports := make([]int, 0, count)
	for range count {
		socket, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer socket.Close()
		ports = append(ports, socket.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}

// ready waits for all brokers and makes the topics.
func (c *Cluster) ready(asked config) error {
	ctx, cancel := context.WithTimeout(context.Background(), startSeconds*time.Second)
	defer cancel()
	admin, err := c.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	for known := 0; known < asked.brokers; {
		if brokers, err := admin.ListBrokers(ctx); err == nil {
			known = len(brokers)
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("%w: %s", err, c.said())
		}
	}
	if err := c.coordinate(ctx, admin); err != nil {
		return err
	}
	for name, partitions := range asked.topics {
		if _, err := admin.CreateTopic(ctx, partitions, -1, nil, name); err != nil {
			return err
		}
		for {
			topics, err := admin.ListTopics(ctx, name)
			if err == nil && topics[name].Err == nil && allLed(topics[name].Partitions, int(partitions)) {
				break
			}
			if err := pause(ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// coordinate waits for the coordinator of groups: the fake has it from the start, and tests do not ask twice.
func (c *Cluster) coordinate(ctx context.Context, admin *kadm.Client) error {
	for {
		told, err := admin.FetchOffsets(ctx, "nobody")
		if err == nil && told.Error() == nil {
			return nil
		}
		if err := pause(ctx); err != nil {
			return fmt.Errorf("%w: %s", err, c.said())
		}
	}
}

func allLed(found kadm.PartitionDetails, partitions int) bool {
	led := 0
	for _, one := range found {
		if one.Err == nil && one.Leader >= 0 {
			led++
		}
	}
	return led == partitions
}

func pause(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(50 * time.Millisecond):
		return nil
	}
}

func (c *Cluster) said() string {
	var all []string
	for id := range c.nodes {
		text, _ := os.ReadFile(filepath.Join(c.folder, strconv.Itoa(id)+".log"))
		all = append(all, string(text[max(0, len(text)-500):]))
	}
	return strings.Join(all, "\n")
}

func (c *Cluster) admin() (*kadm.Client, error) {
	client, err := kgo.NewClient(kgo.SeedBrokers(c.addresses...), kgo.MetadataMinAge(50*time.Millisecond))
	if err != nil {
		return nil, err
	}
	return kadm.NewClient(client), nil
}

// ListenAddrs has the addresses of the brokers.
func (c *Cluster) ListenAddrs() []string { return c.addresses }

// Close kills the nodes and removes what they wrote.
func (c *Cluster) Close() {
	for _, node := range c.nodes {
		_ = node.Process.Kill()
		_ = node.Wait()
	}
	os.RemoveAll(c.folder)
}

func (c *Cluster) topic(name string) kadm.TopicDetail {
	ctx, cancel := context.WithTimeout(context.Background(), startSeconds*time.Second)
	defer cancel()
	admin, err := c.admin()
	if err != nil {
		panic(err)
	}
	defer admin.Close()
	topics, err := admin.ListTopics(ctx, name)
	if err != nil {
		panic(err)
	}
	return topics[name]
}

// TopicInfo is what is known of a topic.
func (c *Cluster) TopicInfo(name string) *TopicInfo {
	return &TopicInfo{Topic: name, TopicID: c.topic(name).ID}
}

// LeaderFor is the leader of a partition.
func (c *Cluster) LeaderFor(name string, partition int32) int32 {
	return c.topic(name).Partitions[partition].Leader
}

// MoveTopicPartition makes a broker the leader of a partition.
func (c *Cluster) MoveTopicPartition(name string, partition, to int32) error {
	ctx, cancel := context.WithTimeout(context.Background(), startSeconds*time.Second)
	defer cancel()
	admin, err := c.admin()
	if err != nil {
		return err
	}
	defer admin.Close()
	replicas := []int32{to}
	for _, one := range c.topic(name).Partitions[partition].Replicas {
		if one != to {
			replicas = append(replicas, one)
		}
	}
	var move kadm.AlterPartitionAssignmentsReq
	move.Assign(name, partition, replicas)
	if _, err := admin.AlterPartitionAssignments(ctx, move); err != nil {
		return err
	}
	for c.LeaderFor(name, partition) != to {
		if err := pause(ctx); err != nil {
			return errors.Join(err, errors.New("the leader did not move"))
		}
		only := kadm.TopicsSet{}
		only.Add(name, partition)
		if _, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, only); err != nil {
			return err
		}
	}
	return nil
}

// ControlKey answers requests in place of a broker, which real brokers do not let a test do.
func (c *Cluster) ControlKey(int16, func(kmsg.Request) (kmsg.Response, error, bool)) {
	panic("inside: a test that answers requests itself")
}

// KeepControl belongs to ControlKey.
func (c *Cluster) KeepControl() {}

// CurrentNode belongs to ControlKey.
func (c *Cluster) CurrentNode() int32 { return -1 }

// The tests' helpers name the fake's file system, which no test that is run here asks for.
type fs struct{}

func newMemFS() fs { return fs{} }

func withFS(fs) Opt { panic("inside: the file system of the fake") }
