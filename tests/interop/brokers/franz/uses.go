package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"
)

// What `client_config("franz-go")` gives: the options of kgo by their names.
type config struct {
	SeedBrokers   []string
	DialTLSConfig *struct{ RootCAs string }
	SASL          *struct{ User, Pass string }
}

func (c config) options() []kgo.Opt {
	found := []kgo.Opt{kgo.SeedBrokers(c.SeedBrokers...), kgo.RecordPartitioner(kgo.ManualPartitioner())}
	if c.DialTLSConfig != nil {
		pem, err := os.ReadFile(c.DialTLSConfig.RootCAs)
		check(err)
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(pem)
		found = append(found, kgo.DialTLSConfig(&tls.Config{RootCAs: roots}))
	}
	if c.SASL != nil {
		found = append(found, kgo.SASL(plain.Auth{User: c.SASL.User, Pass: c.SASL.Pass}.AsMechanism()))
	}
	return found
}

// Reads {"config", "topic", "times"} in JSON, and prints the outcome of the six uses in JSON.
func uses(ctx context.Context) {
	var asked struct {
		Config config
		Topic  string
		Times  []int64
	}
	check(json.NewDecoder(os.Stdin).Decode(&asked))
	topic, outcome := asked.Topic, map[string]any{}
	client, err := kgo.NewClient(asked.Config.options()...)
	check(err)
	defer client.Close()

	create := kmsg.NewPtrCreateTopicsRequest()
	wanted := kmsg.NewCreateTopicsRequestTopic()
	wanted.Topic, wanted.NumPartitions, wanted.ReplicationFactor = topic, 2, 1
	create.Topics = append(create.Topics, wanted)
	created, err := create.RequestWith(ctx, client)
	check(err)
	check(kerr.ErrorForCode(created.Topics[0].ErrorCode))

	offsets := []int64{}
	for at, value := range []string{"one", "two", "three"} {
		record := &kgo.Record{Topic: topic, Value: []byte(value), Timestamp: time.UnixMilli(asked.Times[at])}
		check(client.ProduceSync(ctx, record).FirstErr())
		offsets = append(offsets, record.Offset)
	}
	outcome["offsets"] = offsets
	outcome["partitions"] = len(described(ctx, client, topic).Partitions)

	reader, err := kgo.NewClient(append(asked.Config.options(), kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.DisableAutoCommit())...)
	check(err)
	outcome["group"] = values(ctx, reader, 3)
	check(reader.CommitUncommittedOffsets(ctx))
	seek(reader, topic, 1)
	outcome["sought"] = values(ctx, reader, 1)[0]
	outcome["at_time"] = offsetAt(ctx, client, topic, asked.Times[0]+500)

	writer, err := kgo.NewClient(append(asked.Config.options(), kgo.TransactionalID(topic))...)
	check(err)
	for _, value := range []string{"dropped", "kept"} {
		check(writer.BeginTransaction())
		check(writer.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte(value)}).FirstErr())
		check(writer.EndTransaction(ctx, kgo.TransactionEndTry(value == "kept")))
	}
	writer.Close()
	seek(reader, topic, 3)
	outcome["committed"] = values(ctx, reader, 1)[0]
	reader.Close()

	remove := kmsg.NewPtrDeleteTopicsRequest()
	removed := kmsg.NewDeleteTopicsRequestTopic()
	removed.Topic = kmsg.StringPtr(topic)
	remove.Topics, remove.TopicNames = append(remove.Topics, removed), []string{topic}
	deleted, err := remove.RequestWith(ctx, client)
	check(err)
	check(kerr.ErrorForCode(deleted.Topics[0].ErrorCode))
	outcome["is_deleted"] = described(ctx, client, topic).ErrorCode == kerr.UnknownTopicOrPartition.Code
	check(json.NewEncoder(os.Stdout).Encode(outcome))
}

func described(ctx context.Context, client *kgo.Client, topic string) kmsg.MetadataResponseTopic {
	request := kmsg.NewPtrMetadataRequest()
	wanted := kmsg.NewMetadataRequestTopic()
	wanted.Topic = kmsg.StringPtr(topic)
	request.Topics = append(request.Topics, wanted)
	answer, err := request.RequestWith(ctx, client)
	check(err)
	return answer.Topics[0]
}

func offsetAt(ctx context.Context, client *kgo.Client, topic string, timestamp int64) int64 {
	request := kmsg.NewPtrListOffsetsRequest()
	of := kmsg.NewListOffsetsRequestTopic()
	one := kmsg.NewListOffsetsRequestTopicPartition()
	one.Timestamp = timestamp
	of.Topic, of.Partitions = topic, append(of.Partitions, one)
	request.ReplicaID, request.Topics = -1, append(request.Topics, of)
	answer, err := request.RequestWith(ctx, client)
	check(err)
	return answer.Topics[0].Partitions[0].Offset
}

func seek(client *kgo.Client, topic string, offset int64) {
	client.SetOffsets(map[string]map[int32]kgo.EpochOffset{topic: {0: {Epoch: -1, Offset: offset}}})
}

func values(ctx context.Context, client *kgo.Client, count int) []string {
	found := []string{}
	for len(found) < count {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			if len(found) < count {
				found = append(found, string(record.Value))
			}
		})
	}
	if len(found) != count {
		check(fmt.Errorf("%d values", len(found)))
	}
	return found
}
