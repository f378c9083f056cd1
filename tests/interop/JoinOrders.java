import java.time.Duration;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;

/**
 * Joins orders with payments exactly once in a streams group, until a signal, and counts the paid orders of each user.
 * The values are `ORDER USER` and `ORDER AMOUNT`; what comes out is ORDER with `USER AMOUNT`, and USER with a count.
 * Arguments: bootstrap servers, application, topics of orders, payments, paid orders and counts, directory of the
 * state, replicas of internal topics, and further settings as key=value.
 */
public class JoinOrders {
    static KStream<String, String> byOrder(StreamsBuilder builder, String topic) {
        Serde<String> texts = Serdes.String();
        return builder.stream(topic, Consumed.with(texts, texts)).map((key, value) -> {
            String[] words = value.split(" ");
            return KeyValue.pair(words[0], words[1]);
        });
    }

    public static void main(String[] args) {
        Properties settings = new Properties();
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1]);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, args[6]);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, Integer.parseInt(args[7]));
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put("group.protocol", "streams");
        settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
        Arrays.stream(args).skip(8).map(one -> one.split("=", 2)).forEach(one -> settings.put(one[0], one[1]));

        Serde<String> texts = Serdes.String();
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> paid = byOrder(builder, args[2]).join(
            byOrder(builder, args[3]), (user, amount) -> user + " " + amount,
            JoinWindows.ofTimeDifferenceAndGrace(Duration.ofHours(1), Duration.ofHours(1)), StreamJoined.with(texts, texts, texts));
        paid.to(args[4], Produced.with(texts, texts));
        paid.groupBy((order, both) -> both.split(" ")[0], Grouped.with(texts, texts))
            .count()
            .toStream()
            .to(args[5], Produced.with(texts, Serdes.Long()));

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        streams.setUncaughtExceptionHandler(failure -> {
            failure.printStackTrace();
            return StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(streams::close));
        streams.start();
    }
}
