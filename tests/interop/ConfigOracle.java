import java.util.Scanner;
import java.util.TreeMap;
import java.nio.charset.StandardCharsets;

import kafka.server.KafkaConfig;
import org.apache.kafka.common.config.types.Password;
import org.apache.kafka.common.utils.Utils;

/**
 * What Kafka makes of properties files. A line of standard input is a path; the answer is a line, "refused" and why, or
 * "read" and the node's id, directories, rack, secret and the protocols of its listeners, between tabs.
 */
public class ConfigOracle {
    public static void main(String[] args) {
        Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
        while (lines.hasNextLine()) {
            System.out.println(answer(lines.nextLine()).replace("\n", "\\n"));
        }
    }

    private static String answer(String path) {
        try {
            KafkaConfig config = new KafkaConfig(Utils.loadProps(path), false);
            Password secret = config.getPassword("delegation.token.secret.key");
            TreeMap<String, String> protocols = new TreeMap<>();
            config.listeners().foreach(one -> protocols.put(one.listener(), one.securityProtocol().name));
            return String.join("\t", "read", String.valueOf(config.nodeId()), String.join(",", config.logDirs()),
                String.valueOf(config.getString("broker.rack")), secret == null ? "null" : secret.value(),
                protocols.toString());
        } catch (RuntimeException refused) {
            return "refused\t" + refused;
        } catch (Exception failed) {
            throw new IllegalStateException(failed);
        }
    }
}
