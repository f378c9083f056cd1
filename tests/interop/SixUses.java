import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Standard input: {"config", "topic", "times"} in JSON; prints the outcome of the six uses in JSON. */
public class SixUses {
    public static void main(String[] args) throws Exception {
        ObjectMapper json = new ObjectMapper();
        JsonNode asked = json.readTree(System.in);
        Map<String, Object> config = json.convertValue(asked.get("config"), HashMap.class);
        String topic = asked.get("topic").asText();
        TopicPartition place = new TopicPartition(topic, 0);
        List<TopicPartition> places = List.of(place);
        StringSerializer text = new StringSerializer();
        StringDeserializer back = new StringDeserializer();
        Map<String, Object> outcome = new LinkedHashMap<>();
        try (Admin admin = Admin.create(config)) {
            admin.createTopics(List.of(new NewTopic(topic, 2, (short) 1))).all().get();
            try (KafkaProducer<String, String> producer = new KafkaProducer<>(config, text, text)) {
                List<Long> offsets = new ArrayList<>();
                int at = 0;
                for (String value : List.of("one", "two", "three")) {
                    long time = asked.get("times").get(at++).asLong();
                    offsets.add(producer.send(new ProducerRecord<>(topic, 0, time, null, value)).get().offset());
                }
                outcome.put("offsets", offsets);
                outcome.put("partitions", producer.partitionsFor(topic).size());
            }
            Map<String, Object> reads = with(config, "group.id", topic);
            reads.put("auto.offset.reset", "earliest");
            reads.put("isolation.level", "read_committed");
            try (KafkaConsumer<String, String> consumer = new KafkaConsumer<>(reads, back, back)) {
                consumer.subscribe(List.of(topic));
                outcome.put("group", values(consumer, 3));
                consumer.commitSync();
                consumer.seek(place, 1);
                outcome.put("sought", values(consumer, 1).get(0));
                long between = asked.get("times").get(0).asLong() + 500;
                outcome.put("at_time", consumer.offsetsForTimes(Map.of(place, between)).get(place).offset());
                Map<String, Object> writes = with(config, "transactional.id", topic);
                try (KafkaProducer<String, String> writer = new KafkaProducer<>(writes, text, text)) {
                    writer.initTransactions();
                    for (String value : List.of("dropped", "kept")) {
                        writer.beginTransaction();
                        writer.send(new ProducerRecord<>(topic, 0, null, value)).get();
                        if (value.equals("kept")) {
                            writer.commitTransaction();
                        } else {
                            writer.abortTransaction();
                        }
                    }
                }
                consumer.seek(place, 3);
                outcome.put("committed", values(consumer, 1).get(0));
            }
            admin.deleteTopics(List.of(topic)).all().get();
            outcome.put("is_deleted", !admin.listTopics().names().get().contains(topic));
        }
        System.out.println(json.writeValueAsString(outcome));
    }

    private static Map<String, Object> with(Map<String, Object> config, String key, String value) {
        Map<String, Object> found = new HashMap<>(config);
        found.put(key, value);
        return found;
    }

    private static List<String> values(KafkaConsumer<String, String> consumer, int count) {
        List<String> found = new ArrayList<>();
        while (found.size() < count) {
            for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofSeconds(1))) {
                if (found.size() < count) {
                    found.add(record.value());
                }
            }
        }
        return found;
    }
}
