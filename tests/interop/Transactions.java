import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Arguments: bootstrap servers, transactional id, ends ("commit,abort,..."), topics. Three records to each topic. */
public class Transactions {
    public static void main(String[] args) {
        Map<String, Object> settings = Map.of("bootstrap.servers", args[0], "transactional.id", args[1]);
        ByteArraySerializer plain = new ByteArraySerializer();
        try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings, plain, plain)) {
            producer.initTransactions();
            int number = 0;
            for (String end : args[2].split(",")) {
                producer.beginTransaction();
                for (String topic : args[3].split(",")) {
                    for (int at = 0; at < 3; at++) {
                        byte[] value = (end + " " + number + " " + at).getBytes();
                        producer.send(new ProducerRecord<>(topic, 0, null, value));
                    }
                }
                producer.flush();
                if (end.equals("commit")) {
                    producer.commitTransaction();
                } else {
                    producer.abortTransaction();
                }
                number++;
            }
        }
    }
}
