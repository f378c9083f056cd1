import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.Map;
import java.util.Optional;
import java.util.Random;

import static java.nio.charset.StandardCharsets.UTF_8;

import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.server.log.remote.metadata.storage.RemoteLogSegmentMetadataSnapshot;
import org.apache.kafka.server.log.remote.metadata.storage.generated.MetadataJsonConverters;
import org.apache.kafka.server.log.remote.metadata.storage.generated.MetadataRecordType;
import org.apache.kafka.server.log.remote.metadata.storage.serialization.RemoteLogMetadataSerde;
import org.apache.kafka.server.log.remote.storage.RemoteLogMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentId;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadata.CustomMetadata;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentMetadataUpdate;
import org.apache.kafka.server.log.remote.storage.RemoteLogSegmentState;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteMetadata;
import org.apache.kafka.server.log.remote.storage.RemotePartitionDeleteState;

/** Writes and reads records of __remote_log_metadata: `write SEED COUNT` draws some, `read HEX` says what Kafka's tool
    shows of these bytes. A line of an answer has the name, the bytes, the text and the JSON, all but the first in hex. */
public class RemoteLogOracle {
    private static final RemoteLogMetadataSerde SERDE = new RemoteLogMetadataSerde();

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("write")) {
                Random random = new Random(Long.parseLong(words[1]));
                for (int left = Integer.parseInt(words[2]); left > 0; left--) {
                    say(SERDE.serialize(drawn(random)));
                }
            } else {
                say(HexFormat.of().parseHex(words.length > 1 ? words[1] : ""));
            }
        }
    }

    private static void say(byte[] data) {
        String name = "", text, json = "";
        try {
            text = SERDE.deserialize(data).toString();
            // One byte of the frame's version, one of the type and one of the version stand before the body.
            ApiMessage message = MetadataRecordType.fromId(data[1]).newMetadataRecord();
            message.read(new ByteBufferAccessor(java.nio.ByteBuffer.wrap(data, 3, data.length - 3)), data[2]);
            name = message.getClass().getSimpleName();
            json = MetadataJsonConverters.writeJson(message, data[2]).toString();
        } catch (Throwable refused) {
            text = "Error " + refused.getClass().getSimpleName();
        }
        System.out.println(String.join("\t", name, hex(data), hex(text.getBytes(UTF_8)), hex(json.getBytes(UTF_8))));
    }

    private static String hex(byte[] data) {
        return HexFormat.of().formatHex(data);
    }

    private static RemoteLogMetadata drawn(Random random) {
        TopicIdPartition partition = new TopicIdPartition(uuid(random), new TopicPartition("topic.of-" + random.nextInt(99), random.nextInt(5)));
        RemoteLogSegmentId id = new RemoteLogSegmentId(partition, uuid(random));
        long start = number(random), end = start + number(random) / 2;
        int size = random.nextInt(), broker = random.nextInt(9) - 1;
        long time = random.nextInt(4) == 0 ? -1 : number(random), event = number(random);
        RemoteLogSegmentState state = RemoteLogSegmentState.values()[random.nextInt(4)];
        byte[] own = new byte[random.nextInt(200)];
        random.nextBytes(own);
        Optional<CustomMetadata> custom = random.nextBoolean() ? Optional.of(new CustomMetadata(own)) : Optional.empty();
        Map<Integer, Long> epochs = new HashMap<>();
        for (int left = random.nextInt(4); left >= 0; left--) {
            epochs.put(random.nextInt(1 << 20), number(random));
        }
        boolean isEmpty = random.nextBoolean();
        switch (random.nextInt(4)) {
            case 0:
                return new RemoteLogSegmentMetadata(id, start, end, time, broker, event, size, epochs, isEmpty);
            case 1:
                if (state == RemoteLogSegmentState.COPY_SEGMENT_STARTED) state = RemoteLogSegmentState.COPY_SEGMENT_FINISHED;
                return new RemoteLogSegmentMetadataUpdate(id, event, custom, state, broker);
            case 2:
                return new RemotePartitionDeleteMetadata(partition, RemotePartitionDeleteState.values()[random.nextInt(3)], event, broker);
            default:
                return new RemoteLogSegmentMetadataSnapshot(uuid(random), start, end, time, broker, event, size, custom, state, epochs, isEmpty);
        }
    }

    private static Uuid uuid(Random random) {
        return new Uuid(random.nextLong(), random.nextLong());
    }

    private static long number(Random random) {
        return random.nextLong() >>> (2 + random.nextInt(50));
    }
}
