// A client of franz-go: it produces the lines of its standard input to partition 0 of a topic, idempotently, and prints
// the offset of each acknowledged line; or it assigns that partition and prints the first values; or it does six uses.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func main() {
	ctx, cancel := context.WithTimeout(context.Background(), 90*time.Second)
	defer cancel()
	how := os.Args[1]
	if how == "uses" {
		uses(ctx)
		return
	}
	servers, topic, what := strings.Split(os.Args[2], ","), os.Args[3], os.Args[4]
	if how == "produce" {
		produce(ctx, servers, topic, codecs[what])
	} else {
		count, err := strconv.Atoi(what)
		check(err)
		consume(ctx, servers, topic, count)
	}
}

func produce(ctx context.Context, servers []string, topic string, codec kgo.CompressionCodec) {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(servers...),
		kgo.DefaultProduceTopic(topic),
		kgo.ProducerBatchCompression(codec),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	check(err)
	defer client.Close()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		record := &kgo.Record{Value: []byte(lines.Text()), Partition: 0}
		client.Produce(ctx, record, func(done *kgo.Record, err error) {
			check(err)
			fmt.Println(done.Offset)
		})
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
		fetches.EachRecord(func(record *kgo.Record) {
			fmt.Println(string(record.Value))
			count--
		})
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
