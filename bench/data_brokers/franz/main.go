// A client of franz-go under full load: it produces records of one size to partition 0 of a topic, or assigns that
// partition and reads as many records from its beginning. It prints the seconds that this took.
package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const batchBytes = 64 << 10

func main() {
	how, servers, topic, acks := os.Args[1], strings.Split(os.Args[2], ","), os.Args[3], os.Args[4]
	count, err := strconv.Atoi(os.Args[5])
	check(err)
	size, err := strconv.Atoi(os.Args[6])
	check(err)
	ctx, cancel := context.WithTimeout(context.Background(), 120*time.Second)
	defer cancel()
	began := time.Now()
	if how == "produce" {
		produce(ctx, servers, topic, acks, count, size)
	} else {
		consume(ctx, servers, topic, count)
	}
	fmt.Println(time.Since(began).Seconds())
}

func produce(ctx context.Context, servers []string, topic, acks string, count, size int) {
	wanted := kgo.LeaderAck()
	if acks == "all" {
		wanted = kgo.AllISRAcks()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(servers...),
		kgo.DefaultProduceTopic(topic),
		kgo.DisableIdempotentWrite(),
		kgo.RequiredAcks(wanted),
		kgo.MaxProduceRequestsInflightPerBroker(5),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerBatchMaxBytes(batchBytes),
		kgo.ProducerLinger(10*time.Millisecond),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	check(err)
	defer client.Close()
	value := make([]byte, size)
	for number := 0; number < count; number++ {
		client.Produce(ctx, &kgo.Record{Value: value, Partition: 0}, func(_ *kgo.Record, err error) { check(err) })
	}
	check(client.Flush(ctx))
}

func consume(ctx context.Context, servers []string, topic string, count int) {
	start := map[string]map[int32]kgo.Offset{topic: {0: kgo.NewOffset().AtStart()}}
	client, err := kgo.NewClient(kgo.SeedBrokers(servers...), kgo.ConsumePartitions(start))
	check(err)
	defer client.Close()
	for count > 0 {
		fetches := client.PollFetches(ctx)
		check(fetches.Err())
		count -= fetches.NumRecords()
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
